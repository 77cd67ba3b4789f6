//! Holds answers and requests against an OpenAPI document: for tests, of this kernel and of every service.
//!
//! Always: a keyword of JSON Schema that is not understood here is an error, never passed over.

use std::{cell::RefCell, collections::BTreeMap};

use regex_lite::Regex;
use serde_json::Value;

pub struct Checker {
    pub document: Value,
    patterns: RefCell<BTreeMap<String, Regex>>,
}

/// An operation of the document.
pub struct Operation<'a> {
    pub method: String,
    pub path: &'a str,
    pub about: &'a Value,
}

/// What came back.
#[derive(Clone, Copy, Debug)]
pub struct Came<'a> {
    pub status: u16,
    pub kind: &'a str,
    pub body: &'a [u8],
}

/// Keywords that restrict nothing.
const SILENT: &[&str] = &[
    "$ref",
    "description",
    "default",
    "title",
    "format",
    "contentMediaType",
    "x-code",
];

impl Checker {
    pub fn new(document: Value) -> Checker {
        Checker {
            document,
            patterns: RefCell::default(),
        }
    }

    pub fn operations(&self) -> Vec<Operation<'_>> {
        let paths = self.document["paths"].as_object().into_iter().flatten();
        let all = paths.flat_map(|(path, methods)| {
            let methods = methods.as_object().into_iter().flatten();
            methods.map(move |(method, about)| Operation {
                method: method.to_uppercase(),
                path,
                about,
            })
        });
        all.collect()
    }

    /// What is wrong with an answer, if anything is. `path` as it was asked, with its query.
    pub fn answer(&self, method: &str, path: &str, came: Came<'_>) -> Result<(), String> {
        let Came { status, kind, body } = came;
        let path = path.split('?').next().unwrap_or_default();
        let operations = self.operations();
        let mut there: Vec<_> = operations.iter().filter(|o| fits_path(o, path)).collect();
        // A word of the document goes before a parameter.
        there.sort_by_key(|o| o.path.matches('{').count());
        let at = format!("{method} {path}: {status}");
        let operation = there.iter().find(|o| o.method == method);
        let responses =
            operation.map_or(&self.document["x-no-operation"], |o| &o.about["responses"]);
        let text = || String::from_utf8_lossy(body);
        let about = &responses[status.to_string()];
        if about.is_null() {
            return Err(format!("{at} is not listed: {}", text()));
        }
        let content = &about["content"][kind];
        if content.is_null() {
            return Err(format!("{at} is not answered as {kind:?}"));
        }
        if !kind
            .split(';')
            .next()
            .is_some_and(|kind| kind.ends_with("json"))
        {
            return Ok(());
        }
        let value = serde_json::from_slice(body).map_err(|e| format!("{at}: {e}"))?;
        let found = self.fits(&content["schema"], &value, ".");
        found.map_err(|why| format!("{at}: {why}: {}", text()))
    }

    /// Whether the body is one that the document allows.
    pub fn request(&self, operation: &Operation<'_>, body: &Value) -> Result<(), String> {
        let content = &operation.about["requestBody"]["content"]["application/json"];
        self.fits(&content["schema"], body, ".")
    }

    /// The document itself: references lead somewhere, all that is defined is used, each operation has a name.
    pub fn sound(&self) -> Result<(), String> {
        let mut used = Vec::new();
        references(&self.document, &mut used);
        for reference in &used {
            self.resolve(reference)?;
        }
        let schemas = self.document["components"]["schemas"].as_object();
        for name in schemas.into_iter().flat_map(|all| all.keys()) {
            let reference = format!("#/components/schemas/{name}");
            if !used.contains(&&*reference) {
                return Err(format!("{reference} is not used"));
            }
        }
        let mut names: Vec<_> = self.operations();
        names.sort_by_key(|o| o.about["operationId"].to_string());
        for pair in names.windows(2) {
            if pair[0].about["operationId"] == pair[1].about["operationId"] {
                return Err(format!("two are called {}", pair[0].about["operationId"]));
            }
        }
        for operation in self.operations() {
            let content = &operation.about["requestBody"]["content"]["application/json"];
            for example in content["examples"]
                .as_object()
                .into_iter()
                .flat_map(|e| e.values())
            {
                self.request(&operation, &example["value"])?;
            }
        }
        Ok(())
    }

    fn resolve(&self, reference: &str) -> Result<&Value, String> {
        let pointer = reference.strip_prefix('#').unwrap_or_default();
        let found = self.document.pointer(pointer);
        found.ok_or_else(|| format!("{reference} leads nowhere"))
    }

    /// Whether a value is what a schema says; else the place and the rule.
    pub fn fits(&self, schema: &Value, value: &Value, at: &str) -> Result<(), String> {
        if let Some(reference) = schema["$ref"].as_str() {
            self.fits(self.resolve(reference)?, value, at)?;
        }
        for (keyword, rule) in schema.as_object().into_iter().flatten() {
            self.keyword(keyword, rule, schema, value, at)?;
        }
        Ok(())
    }

    fn keyword(
        &self,
        keyword: &str,
        rule: &Value,
        schema: &Value,
        value: &Value,
        at: &str,
    ) -> Result<(), String> {
        let listed = || rule.as_array().into_iter().flatten();
        let fitting = || {
            listed()
                .filter(|one| self.fits(one, value, at).is_ok())
                .count()
        };
        let (number, text) = (value.as_f64(), value.as_str());
        let length = text.map(|text| text.chars().count() as f64);
        let items = value.as_array().map(|items| items.len() as f64);
        let limit = rule.as_f64().unwrap_or(f64::NAN);
        let holds = match keyword {
            "type" => has_type(rule, value),
            "enum" => listed().any(|one| one == value),
            "const" => rule == value,
            "oneOf" => fitting() == 1,
            "anyOf" => fitting() > 0,
            "allOf" => fitting() == listed().count(),
            "not" => self.fits(rule, value, at).is_err(),
            "minimum" => number.is_none_or(|n| n >= limit),
            "maximum" => number.is_none_or(|n| n <= limit),
            "minLength" => length.is_none_or(|n| n >= limit),
            "maxLength" => length.is_none_or(|n| n <= limit),
            "minItems" => items.is_none_or(|n| n >= limit),
            "maxItems" => items.is_none_or(|n| n <= limit),
            "pattern" => text.is_none_or(|text| self.matches(rule.as_str().unwrap_or("$^"), text)),
            "required" => value.as_object().is_none_or(|members| {
                listed().all(|name| members.contains_key(name.as_str().unwrap_or_default()))
            }),
            "items" => {
                for (n, item) in value.as_array().into_iter().flatten().enumerate() {
                    self.fits(rule, item, &format!("{at}[{n}]"))?;
                }
                true
            }
            "properties" => {
                for (name, member) in value.as_object().into_iter().flatten() {
                    if !rule[name].is_null() {
                        self.fits(&rule[name], member, &format!("{at}.{name}"))?;
                    }
                }
                true
            }
            "additionalProperties" => {
                for (name, member) in value.as_object().into_iter().flatten() {
                    let place = format!("{at}.{name}");
                    match (&schema["properties"][name], rule) {
                        (Value::Null, Value::Bool(false)) => {
                            return Err(format!("{place} is not listed"));
                        }
                        (Value::Null, Value::Bool(true)) => {}
                        (Value::Null, rule) => self.fits(rule, member, &place)?,
                        _ => {}
                    }
                }
                true
            }
            keyword if SILENT.contains(&keyword) => true,
            keyword => return Err(format!("{at}: the checker does not know {keyword}")),
        };
        match holds {
            true => Ok(()),
            false => Err(format!("{at} breaks {keyword}: {rule}")),
        }
    }

    fn matches(&self, pattern: &str, text: &str) -> bool {
        let mut known = self.patterns.borrow_mut();
        if !known.contains_key(pattern) {
            let Ok(made) = Regex::new(pattern) else {
                return false;
            };
            known.insert(pattern.to_owned(), made);
        }
        known[pattern].is_match(text)
    }
}

fn fits_path(operation: &Operation<'_>, path: &str) -> bool {
    let parameters = operation.about["parameters"].as_array();
    let mut parameters = parameters.into_iter().flatten();
    let rest = parameters.any(|parameter| parameter["x-rest"] == true);
    let (wanted, asked): (Vec<_>, Vec<_>) = (
        operation.path.split('/').collect(),
        path.split('/').collect(),
    );
    let long_enough = match rest {
        true => asked.len() >= wanted.len(),
        false => asked.len() == wanted.len(),
    };
    let mut pairs = wanted.iter().zip(&asked);
    long_enough && pairs.all(|(w, a)| w == a || (w.starts_with('{') && !a.is_empty()))
}

fn has_type(wanted: &Value, value: &Value) -> bool {
    match wanted {
        Value::Array(any) => any.iter().any(|one| has_type(one, value)),
        wanted => match wanted.as_str().unwrap_or_default() {
            "object" => value.is_object(),
            "array" => value.is_array(),
            "string" => value.is_string(),
            "integer" => value.is_u64() || value.is_i64(),
            "boolean" => value.is_boolean(),
            "null" => value.is_null(),
            _ => false,
        },
    }
}

fn references<'a>(value: &'a Value, into: &mut Vec<&'a str>) {
    match value {
        Value::Object(members) => {
            into.extend(members.get("$ref").and_then(Value::as_str));
            members.values().for_each(|member| references(member, into));
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, into)),
        _ => {}
    }
}
