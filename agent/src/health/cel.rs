//! One rule of health and one object: evaluates the expressions.
//!
//! Nothing here is called in the agent's own process: the parser goes deep into its stack, and nobody
//! bounds what an expression costs. [`super::rules`] does that, with a process that may die.

use std::collections::HashMap;
use std::sync::Arc;

use cel::objects::{Key, Map};
use cel::{Context, Env, ParseErrors};
use farshore_shared::wire::HealthRule;
use serde_json::Value;

use super::Health;

/// The fields of an object that an expression sees under their own names.
const FIELDS: [&str; 5] = ["apiVersion", "kind", "metadata", "spec", "status"];

/// Judges an object by a rule.
///
/// An expression that is no expression, or gives neither true nor false, has failed: waiting does not
/// mend it. One that asks for a field which is not there yet is waited for.
#[must_use]
pub fn judge(rule: &HealthRule, object: &Value) -> Health {
    let env = Arc::new(Env::stdlib());
    let mut context = Context::with_env(Arc::clone(&env));
    for field in FIELDS {
        // A controller that has not been there yet has left no status: that is an empty one.
        let value = object.get(field).map_or_else(|| mapping([]), value);
        context.add_variable_from_value(field, value);
    }
    context.add_variable_from_value("self", value(object));
    let expressions = [
        ("inProgress", rule.in_progress.as_deref()),
        ("failed", rule.failed.as_deref()),
        ("current", Some(rule.current.as_str())),
    ];
    for (name, text) in expressions {
        let Some(text) = text else { continue };
        match (is_true(&env, &context, text), name) {
            (Ok(false), _) => {}
            (Ok(true), "inProgress") => {
                return Health::progressing("its health rule says that it is in progress");
            }
            (Ok(true), "failed") => return Health::failed("its health rule says that it has failed"),
            (Ok(true), _) => return Health::Current,
            (Err(Trouble::Expression(why)), _) => {
                return Health::failed(format!("its health rule cannot be used ({name}): {why}"));
            }
            (Err(Trouble::Object(why)), _) => {
                return Health::progressing(format!("its health rule finds nothing yet ({name}): {why}"));
            }
        }
    }
    Health::progressing("its health rule does not find it current yet")
}

enum Trouble {
    /// The expression is at fault.
    Expression(String),
    /// The object is not as the expression expects it.
    Object(String),
}

fn is_true(env: &Env, context: &Context<'_, '_>, text: &str) -> Result<bool, Trouble> {
    let program = env.compile(text).map_err(|errors| Trouble::Expression(first(&errors)))?;
    match program.execute(context) {
        Ok(cel::Value::Bool(answer)) => Ok(answer),
        Ok(other) => Err(Trouble::Expression(format!("it gives a {}, not true or false", other.type_of()))),
        Err(cel::ExecutionError::UndeclaredReference(name)) => {
            Err(Trouble::Expression(format!("nothing is called {name}")))
        }
        Err(error) => Err(Trouble::Object(error.to_string())),
    }
}

/// The first line of what the parser says: the others draw the place.
fn first(errors: &ParseErrors) -> String {
    errors.to_string().lines().next().unwrap_or("it is not CEL").to_owned()
}

/// Whole numbers are `int`, as in the rules of Kubernetes itself, so that they can be added and compared.
fn value(json: &Value) -> cel::Value {
    match json {
        Value::Null => cel::Value::Null,
        Value::Bool(value) => cel::Value::Bool(*value),
        Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(whole), _) => cel::Value::Int(whole),
            (None, Some(whole)) => cel::Value::UInt(whole),
            (None, None) => cel::Value::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        Value::String(text) => cel::Value::String(Arc::new(text.clone())),
        Value::Array(items) => cel::Value::List(Arc::new(items.iter().map(value).collect())),
        Value::Object(fields) => mapping(fields.iter().map(|(key, field)| (key.clone(), value(field)))),
    }
}

fn mapping(fields: impl IntoIterator<Item = (String, cel::Value)>) -> cel::Value {
    let map: HashMap<Key, cel::Value> =
        fields.into_iter().map(|(key, value)| (Key::String(Arc::new(key)), value)).collect();
    cel::Value::Map(Map { map: Arc::new(map) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn rule(in_progress: Option<&str>, failed: Option<&str>, current: &str) -> HealthRule {
        HealthRule {
            api_version: "shop.example/v1".into(),
            kind: "Till".into(),
            in_progress: in_progress.map(Into::into),
            failed: failed.map(Into::into),
            current: current.into(),
        }
    }

    fn till() -> Value {
        json!({"apiVersion": "shop.example/v1", "kind": "Till", "metadata": {"name": "one", "generation": 2},
            "spec": {"lanes": 4}, "status": {"phase": "Open", "lanes": 4, "load": 0.5, "conditions": [
                {"type": "Ready", "status": "True"}, {"type": "Quiet", "status": "False"}]}})
    }

    /// In the debug build the parser needs more stack than a test has.
    fn with_stack<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
        let thread = std::thread::Builder::new().stack_size(64 << 20).spawn(work);
        thread.expect("there is room for a thread").join().expect("it does not panic")
    }

    fn judged(rule: HealthRule, object: Value) -> Health {
        with_stack(move || judge(&rule, &object))
    }

    #[test]
    fn the_first_expression_that_is_true_decides() {
        for (in_progress, failed, current, wanted) in [
            (None, None, "status.phase == 'Open'", "current"),
            (None, None, "status.lanes == spec.lanes && status.lanes + 1 > 4", "current"),
            (
                None,
                None,
                "self.status.conditions.exists(c, c.type == 'Ready' && c.status == 'True')",
                "current",
            ),
            (
                None,
                None,
                "status.conditions.filter(c, c.type == 'Ready').all(c, c.status == 'True')",
                "current",
            ),
            (None, None, "status.load < 1.0 && status.phase.matches('^O')", "current"),
            (None, None, "status.phase == 'Closed'", "progressing"),
            (Some("status.lanes == 4"), None, "true", "progressing"),
            (Some("false"), Some("metadata.generation == 2"), "true", "failed"),
            (None, None, "status.missing == 1", "progressing"),
            (None, None, "has(status.missing)", "progressing"),
        ] {
            let health = judged(rule(in_progress, failed, current), till());
            let word = match health {
                Health::Current => "current",
                Health::Progressing(_) => "progressing",
                Health::Failed(_) => "failed",
            };
            assert_eq!(word, wanted, "{current}: {health:?}");
        }
    }

    #[test]
    fn an_object_without_status_is_waited_for() {
        let health = judged(rule(None, None, "status.phase == 'Open'"), json!({"kind": "Till"}));
        assert!(matches!(&health, Health::Progressing(why) if why.contains("phase")), "{health:?}");
    }

    #[test]
    fn an_expression_that_cannot_be_used_is_told_and_not_waited_for() {
        for (text, word) in [
            ("1 +", "Syntax"),
            ("", "Syntax"),
            ("\u{0}", "Syntax"),
            ("status.lanes", "not true or false"),
            ("object.status.phase == 'Open'", "nothing is called object"),
            ("nothing(1)", "nothing"),
        ] {
            let health = judged(rule(None, None, text), till());
            assert!(matches!(&health, Health::Failed(why) if why.contains(word)), "{text:?}: {health:?}");
        }
    }

    #[test]
    fn odd_objects_and_odd_arithmetic_are_answers() {
        for object in [json!(null), json!([]), json!({"status": [1]}), json!({"metadata": {"x": u64::MAX}})] {
            for text in
                ["status.phase == 'Open'", "1 / 0 == 1", "9223372036854775807 + 1 == 0", "status[5] == 1"]
            {
                let health = judged(rule(None, None, text), object.clone());
                assert!(matches!(health, Health::Progressing(_)), "{text}: {health:?}");
            }
        }
    }
}
