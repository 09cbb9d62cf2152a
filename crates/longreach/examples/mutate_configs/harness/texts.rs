//! Files damaged as bytes: cut off, flipped, in another encoding, or blown up.

use super::judge::{self, LONGEST, Verdict};
use super::{Harness, Report};

/// Small numbers from a seed: SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((x ^ (x >> 31)) % n.max(1) as u64) as usize
    }
}

/// What has to come of a damaged file.
#[derive(Clone, Copy)]
enum Expected {
    /// The damage may have left a valid config, in a comment or a number.
    Either,
    Refused,
    /// Refused with this text in the message.
    Telling(&'static str),
    Accepted,
}

type Damage = fn(&[u8], &mut Random) -> Vec<u8>;

const DAMAGES: &[(&str, Expected, Damage)] = &[
    ("bytes: cut off", Expected::Either, |text, random| {
        text[..random.below(text.len())].to_vec()
    }),
    (
        "bytes: one bit flipped",
        Expected::Either,
        |text, random| {
            let mut text = text.to_vec();
            let at = random.below(text.len());
            text[at] ^= 1 << random.below(8);
            text
        },
    ),
    (
        "bytes: eight bytes at random",
        Expected::Either,
        |text, random| {
            let mut text = text.to_vec();
            for _ in 0..8 {
                let at = random.below(text.len());
                text[at] = random.below(256) as u8;
            }
            text
        },
    ),
    (
        "bytes: a piece repeated",
        Expected::Either,
        |text, random| {
            let (a, b) = (random.below(text.len()), random.below(text.len()));
            let piece = &text[a.min(b)..a.max(b)];
            [&text[..a.max(b)], piece, &text[a.max(b)..]].concat()
        },
    ),
    (
        "bytes: a piece left out",
        Expected::Either,
        |text, random| {
            let (a, b) = (random.below(text.len()), random.below(text.len()));
            [&text[..a.min(b)], &text[a.max(b)..]].concat()
        },
    ),
    (
        "bytes: a punctuation mark added",
        Expected::Either,
        |text, random| {
            let at = random.below(text.len());
            [
                &text[..at],
                &[b"[]{}\"'=,.#\n\r\t"[random.below(13)]],
                &text[at..],
            ]
            .concat()
        },
    ),
    (
        "bytes: not UTF-8",
        Expected::Telling("byte offset"),
        |text, random| {
            let at = random.below(text.len());
            [
                &text[..at],
                &[[0xFF, 0xC0, 0x80][random.below(3)]],
                &text[at..],
            ]
            .concat()
        },
    ),
    (
        "bytes: a NUL",
        Expected::Telling("byte offset"),
        |text, random| {
            let at = random.below(text.len());
            [&text[..at], &[0], &text[at..]].concat()
        },
    ),
    (
        "bytes: UTF-16",
        Expected::Telling("UTF-16"),
        |text, random| {
            let little = random.below(2) == 0;
            let units = String::from_utf8_lossy(text).into_owned();
            let units = std::iter::once(0xFEFF).chain(units.encode_utf16());
            units
                .flat_map(|unit| {
                    if little {
                        unit.to_le_bytes()
                    } else {
                        unit.to_be_bytes()
                    }
                })
                .collect()
        },
    ),
    ("bytes: a byte order mark", Expected::Accepted, |text, _| {
        ["\u{FEFF}".as_bytes(), text].concat()
    }),
    (
        "bytes: lines end in CR LF",
        Expected::Accepted,
        |text, _| {
            String::from_utf8_lossy(text)
                .replace('\n', "\r\n")
                .into_bytes()
        },
    ),
    (
        "bytes: over 1 MiB",
        Expected::Telling("larger than"),
        |text, random| {
            [
                text,
                b"\n# ",
                "x".repeat((1 << 20) + random.below(1000)).as_bytes(),
                b"\n",
            ]
            .concat()
        },
    ),
    ("bytes: 100,000 [", Expected::Refused, |text, _| {
        [text, "[".repeat(100_000).as_bytes()].concat()
    }),
    ("bytes: 100,000 {", Expected::Refused, |text, _| {
        [text, b"\nx = ", "{a=".repeat(100_000).as_bytes()].concat()
    }),
    (
        "bytes: a key of 100,000 parts",
        Expected::Refused,
        |text, _| {
            [
                text,
                b"\n",
                vec!["a"; 100_000].join(".").as_bytes(),
                b" = 1\n",
            ]
            .concat()
        },
    ),
    (
        "bytes: an axis of 40,000 parts",
        Expected::Refused,
        |text, _| {
            [
                text,
                b"\n[axes]\n\"",
                vec!["a"; 40_000].join(".").as_bytes(),
                b"\" = [1]\n",
            ]
            .concat()
        },
    ),
    ("bytes: 70,000 keys", Expected::Refused, |text, _| {
        [
            text,
            (0..70_000)
                .map(|i| format!("k{i}=1\n"))
                .collect::<String>()
                .as_bytes(),
        ]
        .concat()
    }),
    (
        "bytes: 200,000 keys",
        Expected::Telling("larger than"),
        |text, _| {
            [
                text,
                (0..200_000)
                    .map(|i| format!("k{i}=1\n"))
                    .collect::<String>()
                    .as_bytes(),
            ]
            .concat()
        },
    ),
    ("bytes: 15,000 tables", Expected::Refused, |text, _| {
        [
            text,
            (0..15_000)
                .map(|i| format!("[k{i}]\n[k{i}.a]\n"))
                .collect::<String>()
                .as_bytes(),
        ]
        .concat()
    }),
    ("bytes: 100,000 seeds", Expected::Refused, |_, _| {
        format!(
            "max_runs = 100000\nseeds = [{}]",
            (0..100_000)
                .map(|i| i.to_string())
                .collect::<Vec<_>>()
                .join(",")
        )
        .into_bytes()
    }),
    (
        "bytes: 50 axes of 1000 values",
        Expected::Refused,
        |text, _| {
            let values = (0..1000)
                .map(|i| i.to_string())
                .collect::<Vec<_>>()
                .join(",");
            let axes = (0..50)
                .map(|i| format!("\"train.k{i}\" = [{values}]\n"))
                .collect::<String>();
            let text = String::from_utf8_lossy(text).replace("[axes]", "[unused]");
            format!("{text}\n[axes]\n{axes}").into_bytes()
        },
    ),
];

impl Harness {
    /// Judges `count` damaged files, each a function of its number.
    pub fn texts(&self, count: usize, report: &mut Report) {
        let bases: Vec<_> = self
            .bases
            .iter()
            .filter(|base| base.name.starts_with("configs/") || base.name == "most")
            .collect();
        // The first are cheap and differ every time; of the bombs a few of each are enough.
        let (cheap, bombs) = DAMAGES.split_at(11);
        for number in 0..count {
            let damage = if number % 100 == 99 {
                &bombs[number / 100 % bombs.len()]
            } else {
                &cheap[number % cheap.len()]
            };
            let base = bases[number / 7 % bases.len()];
            let mut random = Random(number as u64);
            let bytes = (damage.2)(base.text.as_bytes(), &mut random);
            let outcome = judge::answer(&self.file, &bytes, &[]);
            let verdict = match (&outcome.said, damage.1) {
                _ if outcome.secs > LONGEST => {
                    Verdict::Wrong(format!("took {:.1} s", outcome.secs))
                }
                (Err(panic), _) => Verdict::Wrong(format!("panicked: {panic}")),
                (Ok(Ok(_)), Expected::Either | Expected::Accepted) => Verdict::Accepted,
                (Ok(Ok(_)), _) => Verdict::Wrong("accepted".to_owned()),
                (Ok(Err(failure)), Expected::Accepted) => {
                    Verdict::Wrong(format!("refused\n{failure}"))
                }
                (Ok(Err(failure)), expected) => match judge::well_formed(failure) {
                    Err(why) => Verdict::Wrong(why),
                    Ok(()) if !failure.message.contains("--> ") => {
                        Verdict::Wrong(format!("no place\n{failure}"))
                    }
                    Ok(()) => match expected {
                        Expected::Telling(text) if !failure.message.contains(text) => {
                            Verdict::Wrong(format!("does not tell\n{failure}"))
                        }
                        _ => Verdict::Refused,
                    },
                },
            };
            report.take(damage.0, &outcome, verdict, || {
                format!("{}, number {number}, of {}", damage.0, base.name)
            });
        }
    }
}
