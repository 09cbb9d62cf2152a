//! The automaton that a table defines, and what may be wrong with it.

use super::config::AutomatonConfig;
use super::dfa::Dfa;
use schema::{Invalid, in_range, one_of};
use std::collections::BTreeSet;

/// Most symbols, and most states.
const MOST: usize = 64;

/// Reads the automaton of a table.
pub(super) fn read(table: &AutomatonConfig) -> Result<Dfa, Invalid> {
    names("symbols", &table.symbols, "the alphabet")?;
    names("states", &table.states, "the states of the automaton")?;
    let is_state = |key: &str, name: &str| {
        let states: Vec<&str> = table.states.iter().map(String::as_str).collect();
        one_of(key, name, &states, "it is not an entry of task.states")
    };
    is_state("start", &table.start)?;
    for (index, name) in table.accepting.iter().enumerate() {
        is_state(&format!("accepting.{index}"), name)?;
    }
    twice("accepting", &table.accepting)?;
    for (state, row) in &table.transitions {
        is_state(&format!("transitions.{state}"), state)?;
        let symbols: Vec<&str> = table.symbols.iter().map(String::as_str).collect();
        for (symbol, to) in row {
            let key = format!("transitions.{state}.{symbol}");
            one_of(&key, symbol, &symbols, "it is not an entry of task.symbols")?;
            is_state(&key, to)?;
        }
    }
    let number = |name: &str| table.states.iter().position(|state| state == name);
    let row = |state: &String| -> Result<Vec<usize>, Invalid> {
        let row = table.transitions.get(state).ok_or_else(|| {
            let key = format!("transitions.{state}");
            let hint = format!("add {key} = {{ SYMBOL = \"STATE\", .. }}");
            let allowed = "a table for every state of task.states";
            Invalid::new(key, "", "is missing", allowed, hint)
        })?;
        let to = table.symbols.iter().map(|symbol| {
            row.get(symbol).and_then(|to| number(to)).ok_or_else(|| {
                let key = format!("transitions.{state}.{symbol}");
                let hint = "for a dead end, add a state whose transitions all lead to itself";
                let allowed = "a state for every symbol of task.symbols";
                Invalid::new(key, "", "is missing", allowed, hint)
            })
        });
        to.collect()
    };
    let found = Dfa {
        symbols: table.symbols.clone(),
        start: number(&table.start).unwrap_or_default(),
        accepting: table
            .states
            .iter()
            .map(|state| table.accepting.contains(state))
            .collect(),
        next: table.states.iter().map(row).collect::<Result<_, _>>()?,
    };
    check_reached(&found, &table.states)?;
    Ok(found)
}

fn check_reached(dfa: &Dfa, names: &[String]) -> Result<(), Invalid> {
    let (mut reached, mut todo) = (BTreeSet::from([dfa.start]), vec![dfa.start]);
    while let Some(state) = todo.pop() {
        todo.extend(dfa.next[state].iter().filter(|to| reached.insert(**to)));
    }
    match (0..names.len()).find(|state| !reached.contains(state)) {
        None => Ok(()),
        Some(state) => Err(Invalid::new(
            format!("states.{state}"),
            &names[state],
            "cannot be reached from the start",
            "states that some word leads to",
            "remove it, or lead a transition to it",
        )),
    }
}

/// Checks names: how many, that each is a key of TOML without quotes, and that none occurs twice.
fn names(key: &str, names: &[String], what: &str) -> Result<(), Invalid> {
    in_range(key, names.len(), 1..=MOST, what).map_err(|error| Invalid {
        value: format!("{} names", names.len()),
        ..error
    })?;
    let bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    for (index, name) in names.iter().enumerate() {
        if name.is_empty() || name.len() > 32 || !name.chars().all(bare) {
            let allowed = "1 to 32 letters of ASCII, digits, _ and -";
            let hint = "names are keys of task.transitions";
            let key = format!("{key}.{index}");
            return Err(Invalid::new(key, name, "is not a name", allowed, hint));
        }
    }
    twice(key, names)
}

fn twice(key: &str, names: &[String]) -> Result<(), Invalid> {
    let mut seen = BTreeSet::new();
    match names.iter().position(|name| !seen.insert(name)) {
        None => Ok(()),
        Some(index) => Err(Invalid::new(
            format!("{key}.{index}"),
            &names[index],
            "occurs twice in the list",
            "different names",
            "remove one",
        )),
    }
}
