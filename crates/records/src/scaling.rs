//! Scalings of rotary encodings that a test-time variant replaces.

use crate::text;
use serde_json::Value;

/// How a variant evaluates weights that were trained under a scaling: `trained under the scaling
/// yarn, evaluated under ntk`. None where no scaling was trained, where its factor is 1, and where
/// the variant has the same one, up to a factor that follows the length. Both are resolved
/// encodings.
pub fn replaced(trained: &Value, variant: &Value) -> Option<String> {
    let (mut was, mut is) = (Vec::new(), Vec::new());
    scalings(trained, &mut was);
    scalings(variant, &mut is);
    // A factor may follow the length.
    let rest = |all: &[Value]| -> Vec<Value> {
        let mut all = all.to_vec();
        let maps = all.iter_mut().filter_map(Value::as_object_mut);
        maps.for_each(|map| drop(map.shift_remove("factor")));
        all
    };
    let acts = was.iter().any(|scaling| !is_identity(scaling));
    if !acts || rest(&was) == rest(&is) {
        return None;
    }
    let (before, now) = (kinds(&was), kinds(&is));
    Some(match is.is_empty() {
        true => format!("trained under the scaling {before}, evaluated without it"),
        false if before == now => {
            format!("trained under the scaling {before}, evaluated under another {now}")
        }
        false => format!("trained under the scaling {before}, evaluated under {now}"),
    })
}

/// Every scaling by a factor of 1 is the identity.
fn is_identity(scaling: &Value) -> bool {
    scaling.get("factor").and_then(Value::as_f64) == Some(1.0)
}

/// Scalings inside an encoding, in the order of its keys.
fn scalings(encoding: &Value, found: &mut Vec<Value>) {
    match encoding {
        Value::Object(map) => {
            for (key, value) in map {
                if key == "scaling" && value.get("kind").is_some() {
                    found.push(value.clone());
                } else {
                    scalings(value, found);
                }
            }
        }
        Value::Array(list) => list.iter().for_each(|value| scalings(value, found)),
        _ => {}
    }
}

fn kinds(scalings: &[Value]) -> String {
    let kinds = scalings
        .iter()
        .filter_map(|scaling| scaling.get("kind")?.as_str());
    let kinds: Vec<String> = kinds.map(|kind| text::name(kind, 40)).collect();
    text::and(&kinds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn rope(scaling: &Value) -> Value {
        json!({ "kind": "rope", "base": 10000.0, "scaling": scaling })
    }

    #[test]
    fn only_a_scaling_that_was_trained_is_replaced() {
        let yarn = |factor: f64| json!({ "kind": "yarn", "factor": factor, "beta_fast": 32.0 });
        let ntk = json!({ "kind": "ntk", "factor": 4.0 });
        let of = |trained: &Value, variant: &Value| replaced(&rope(trained), &rope(variant));
        let said = of(&yarn(4.0), &ntk).unwrap();
        assert_eq!(said, "trained under the scaling yarn, evaluated under ntk");
        let said = of(&yarn(4.0), &Value::Null).unwrap();
        assert_eq!(said, "trained under the scaling yarn, evaluated without it");
        let mut other = yarn(4.0);
        other["beta_fast"] = json!(16.0);
        let said = of(&yarn(4.0), &other).unwrap();
        assert_eq!(
            said,
            "trained under the scaling yarn, evaluated under another yarn"
        );
        // Plain weights, a factor of 1, and one that follows the length.
        assert_eq!(of(&Value::Null, &ntk), None);
        assert_eq!(of(&yarn(1.0), &ntk), None);
        assert_eq!(of(&yarn(2.0), &yarn(8.0)), None);
        // Inside a stack.
        let stack = |scaling: &Value| json!({ "kind": "stack", "parts": [rope(scaling)] });
        assert!(replaced(&stack(&yarn(4.0)), &stack(&ntk)).is_some());
    }
}
