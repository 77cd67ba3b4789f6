//! The part of JSON Schema that the API's document uses: enough to hold answers against it.

use serde_json::Value;

pub struct Document(pub Value);

impl Document {
    pub fn new() -> Document {
        Document(serde_json::from_str(ron_kms::api::OPENAPI).expect("the document is JSON"))
    }

    /// The schema by name.
    pub fn named(&self, name: &str) -> &Value {
        let schema = &self.0["components"]["schemas"][name];
        assert!(schema.is_object(), "no schema {name}");
        schema
    }

    pub fn resolve<'a>(&'a self, schema: &'a Value) -> &'a Value {
        match schema["$ref"].as_str() {
            Some(reference) => {
                let pointer = reference.strip_prefix('#').expect("a reference within");
                let found = self.0.pointer(pointer);
                self.resolve(found.unwrap_or_else(|| panic!("{reference} leads nowhere")))
            }
            None => schema,
        }
    }

    /// Panics with the place if the value does not fit.
    pub fn check(&self, name: &str, value: &Value) {
        if let Err(why) = self.fits(self.named(name), value, name) {
            panic!("{why}\n{value}");
        }
    }

    pub fn fits(&self, schema: &Value, value: &Value, at: &str) -> Result<(), String> {
        let schema = self.resolve(schema);
        let wrong = |what: &str| Err(format!("{at}: {what}"));
        if let Some(choices) = schema["oneOf"].as_array() {
            let fitting = choices.iter().filter(|s| self.fits(s, value, at).is_ok());
            return match fitting.count() {
                1 => Ok(()),
                n => wrong(&format!("{n} of the alternatives fit")),
            };
        }
        if !has_type(&schema["type"], value) {
            return wrong(&format!("not of type {}", schema["type"]));
        }
        if let Some(allowed) = schema["enum"].as_array()
            && !allowed.contains(value)
        {
            return wrong("not one of the listed values");
        }
        match value {
            Value::Object(_) => self.object_fits(schema, value, at),
            Value::Array(items) => {
                let most = schema["maxItems"].as_u64().unwrap_or(u64::MAX);
                let least = schema["minItems"].as_u64().unwrap_or(0);
                if !(least..=most).contains(&(items.len() as u64)) {
                    return wrong("too few or too many");
                }
                let mut items = items.iter().enumerate();
                items.try_for_each(|(n, item)| {
                    self.fits(&schema["items"], item, &format!("{at}[{n}]"))
                })
            }
            Value::String(text) => {
                let pattern = schema["pattern"].as_str();
                match pattern.is_none_or(|pattern| matches(pattern, text)) {
                    true => Ok(()),
                    false => wrong("not of the pattern"),
                }
            }
            Value::Number(number) => {
                let (least, most) = (schema["minimum"].as_f64(), schema["maximum"].as_f64());
                let number = number.as_f64().unwrap_or(f64::NAN);
                let fits = least.is_none_or(|l| number >= l) && most.is_none_or(|m| number <= m);
                if fits { Ok(()) } else { wrong("out of range") }
            }
            _ => Ok(()),
        }
    }

    fn object_fits(&self, schema: &Value, value: &Value, at: &str) -> Result<(), String> {
        let object = value.as_object().expect("an object");
        for name in schema["required"].as_array().into_iter().flatten() {
            let name = name.as_str().expect("a name");
            if !object.contains_key(name) {
                return Err(format!("{at}: {name} is missing"));
            }
        }
        for (name, member) in object {
            let (place, rest) = (format!("{at}.{name}"), &schema["additionalProperties"]);
            match (&schema["properties"][name], rest) {
                (Value::Null, Value::Bool(false)) => return Err(format!("{place} is not listed")),
                (Value::Null, Value::Null) => {}
                (Value::Null, rest) => self.fits(rest, member, &place)?,
                (listed, _) => self.fits(listed, member, &place)?,
            }
        }
        Ok(())
    }
}

fn has_type(wanted: &Value, value: &Value) -> bool {
    match wanted {
        Value::Array(any) => any.iter().any(|one| has_type(one, value)),
        Value::String(name) => match name.as_str() {
            "object" => value.is_object(),
            "array" => value.is_array(),
            "string" => value.is_string(),
            "integer" => value.is_u64() || value.is_i64(),
            "boolean" => value.is_boolean(),
            "null" => value.is_null(),
            other => panic!("the document uses a type {other}"),
        },
        _ => true,
    }
}

/// The few patterns of the document, by hand.
fn matches(pattern: &str, text: &str) -> bool {
    let base64url = |text: &str| {
        text.bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b))
    };
    let kid = |text: &str| text.len() == 22 && base64url(text);
    let version = |text: &str| {
        text.split_once("#v")
            .is_some_and(|(k, n)| kid(k) && n.parse::<u32>().is_ok_and(|n| n > 0))
    };
    match pattern {
        "^[A-Za-z0-9_-]*$" => base64url(text),
        "^[A-Za-z0-9_-]{22}$" => kid(text),
        "^[A-Za-z0-9_-]{22}#v[1-9][0-9]*$" => version(text),
        "^[A-Za-z0-9_-]{22}(#v[1-9][0-9]*)?$" => kid(text) || version(text),
        "^[ -~]*$" => text.bytes().all(|b| (b' '..=b'~').contains(&b)),
        "^[!-~]*$" => text.bytes().all(|b| b.is_ascii_graphic()),
        other => panic!("the document uses a pattern {other}"),
    }
}
