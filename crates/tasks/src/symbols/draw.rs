//! Numbers from free choices.

/// Different numbers from choices among ever fewer values: choice i picks among the numbers that
/// the earlier ones left, in order.
pub(crate) fn distinct(choices: &[u64]) -> Vec<u64> {
    let mut taken = Vec::with_capacity(choices.len());
    let mut picked = Vec::with_capacity(choices.len());
    for &choice in choices {
        let mut number = choice;
        // `taken` is sorted: every taken number up to the candidate moves it up by one.
        let place = taken
            .iter()
            .take_while(|&&t| {
                t <= number && {
                    number += 1;
                    true
                }
            })
            .count();
        taken.insert(place, number);
        picked.push(number);
    }
    picked
}

/// Numbers of values of the choices that shuffle `n` places.
pub(crate) fn shuffle_choices(n: usize) -> impl Iterator<Item = u64> {
    (2..=n as u64).rev()
}

/// `zeros` zeros and ones for the rest of `n`, shuffled (Fisher and Yates, from the end).
pub(crate) fn shuffled_bits(n: usize, zeros: usize, choices: &[u64]) -> Vec<i32> {
    let mut bits: Vec<i32> = (0..n).map(|i| i32::from(i >= zeros)).collect();
    for (last, &place) in (1..n).rev().zip(choices) {
        bits.swap(last, place as usize);
    }
    bits
}

/// `number` as `len` decimal digits, most significant first.
///
/// # Panics
/// If the number has more digits.
pub(crate) fn digits(number: usize, len: usize) -> Vec<i32> {
    let mut rest = number;
    let mut digits: Vec<i32> = (0..len)
        .map(|_| {
            let digit = rest % 10;
            rest /= 10;
            digit as i32
        })
        .collect();
    assert_eq!(rest, 0, "{number} has more than {len} digits");
    digits.reverse();
    digits
}

/// Number of decimal digits of `number`.
pub(crate) fn digits_len(number: usize) -> usize {
    number.checked_ilog10().unwrap_or(0) as usize + 1
}
