//! JSON, one document after the other, with the numbers and the strictness of the YAML reader.

use serde::de::{DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::{DEPTH_LIMIT, Fault, YamlError, scalar};

/// Every document of a text, up to the first that is JSON and yet refused.
///
/// An error means that the text is not JSON: then it may be YAML in flow style.
pub(super) fn read(text: &str) -> Result<Vec<Result<Value, YamlError>>, serde_json::Error> {
    let mut documents = Vec::new();
    let mut stream = serde_json::de::Deserializer::from_str(text);
    loop {
        // A stream ends where nothing but space is left.
        if stream.end().is_ok() {
            return Ok(documents);
        }
        match StrictJson(DEPTH_LIMIT).deserialize(&mut stream) {
            Ok(value) => documents.push(Ok(value)),
            Err(error) if error.is_data() => {
                let line = error.line();
                let message = error.to_string();
                documents.push(Err(YamlError::Syntax { line, message }));
                return Ok(documents);
            }
            Err(error) => return Err(error),
        }
    }
}

/// JSON without duplicate keys and without numbers that `kubectl` reads otherwise; the number is how
/// much deeper it may nest.
struct StrictJson(usize);

impl<'de> DeserializeSeed<'de> for StrictJson {
    type Value = Value;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for StrictJson {
    type Value = Value;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(scalar::unsigned(value))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        scalar::float(value).ok_or_else(|| E::custom("a number that JSON does not have"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let below = self.0.checked_sub(1).ok_or_else(|| A::Error::custom(Fault::Depth))?;
        let mut list = Vec::new();
        while let Some(value) = access.next_element_seed(StrictJson(below))? {
            list.push(value);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let below = self.0.checked_sub(1).ok_or_else(|| A::Error::custom(Fault::Depth))?;
        let mut map = Map::new();
        while let Some(key) = access.next_key::<String>()? {
            let value = access.next_value_seed(StrictJson(below))?;
            if map.contains_key(&key) {
                return Err(A::Error::custom(Fault::DuplicateKey(key)));
            }
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}
