//! Puts the sources together: file text, environment, `--set` flags; reports all that is wrong at once.
//!
//! Always: a later source replaces a key of an earlier one whole, and a configuration with any error in
//! any source, even one that would be overridden, is not loaded.

use std::{borrow::Cow, collections::BTreeMap, fmt};

use toml::{
    Spanned, Value,
    de::{DeTable, DeValue},
};

use super::declare::{KeyDecl, Settings};

/// Where the text of a configuration comes from.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// Name of the file as errors show it, and its text.
    pub file: Option<(String, String)>,
    /// All of the environment; only variables that start with the prefix matter.
    pub env: Vec<(String, String)>,
    /// The values of `--set key=value`, in order.
    pub cli: Vec<String>,
}

/// Which source set a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    Default,
    /// Line 0 is the file as a whole.
    File {
        name: String,
        line: usize,
    },
    Env(String),
    Cli,
}

/// A configuration that passed every check.
#[derive(Clone, Debug)]
pub struct Loaded<T> {
    pub config: T,
    /// The keys that some source set.
    pub(super) set: BTreeMap<String, (Value, Origin)>,
}

/// A rule over several keys that does not hold; `key` is the one to change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    pub key: &'static str,
    pub reason: String,
}

/// One thing that is wrong, told in one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    pub origin: Origin,
    pub key: String,
    /// As it was written; shortened, and hidden if secret.
    pub value: String,
    pub reason: String,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
pub struct ConfigErrors(pub Vec<ConfigError>);

impl Sources {
    /// Loads and checks. `prefix` is that of the service's environment variables (`RON_KMS_`); `rules` are
    /// the ones that no single key can break.
    pub fn load<T: Settings>(
        &self,
        prefix: &str,
        rules: impl Fn(&T) -> Vec<Broken>,
    ) -> Result<Loaded<T>, ConfigErrors> {
        let mut reader = Reader {
            keys: T::keys(),
            set: BTreeMap::new(),
            errors: Vec::new(),
        };
        if let Some((name, text)) = &self.file {
            reader.read_file(name, text);
        }
        reader.read_env(prefix, &self.env);
        reader.read_cli(&self.cli);
        if !reader.errors.is_empty() {
            return Err(ConfigErrors(reader.errors));
        }
        build(reader.set, rules)
    }
}

/// Makes the struct from checked values and applies the rules.
pub(super) fn build<T: Settings>(
    set: BTreeMap<String, (Value, Origin)>,
    rules: impl Fn(&T) -> Vec<Broken>,
) -> Result<Loaded<T>, ConfigErrors> {
    let mut tree = toml::Table::new();
    for (key, (value, _)) in &set {
        insert(&mut tree, key, value.clone());
    }
    let config: T = Value::Table(tree).try_into().map_err(|error| {
        // Each value passed its own check, so this is a declaration that contradicts itself.
        ConfigErrors(vec![ConfigError::new(&Origin::Default, "", "", error)])
    })?;
    let broken = rules(&config);
    if broken.is_empty() {
        return Ok(Loaded { config, set });
    }
    let keys = T::keys();
    let error = |broken: Broken| {
        let decl = keys.iter().find(|k| k.name == broken.key);
        let (value, origin) = match set.get(broken.key) {
            Some((value, origin)) => (value.to_string(), origin.clone()),
            None => (
                decl.map_or(String::new(), |k| k.default.clone()),
                Origin::Default,
            ),
        };
        let value = shown(&value, decl.is_some_and(|k| k.secret));
        ConfigError::new(&origin, broken.key, value, broken.reason)
    };
    Err(ConfigErrors(broken.into_iter().map(error).collect()))
}

impl ConfigErrors {
    /// A file that stands for a key, or holds them, and is of no use.
    pub fn of_file(name: &str, key: &str, reason: impl fmt::Display) -> Self {
        let (name, line) = (name.to_owned(), 0);
        let origin = Origin::File { name, line };
        ConfigErrors(vec![ConfigError::new(&origin, key, "", reason)])
    }
}

impl ConfigError {
    fn new(
        origin: &Origin,
        key: impl Into<String>,
        value: impl Into<String>,
        reason: impl fmt::Display,
    ) -> Self {
        ConfigError {
            origin: origin.clone(),
            key: key.into(),
            value: value.into(),
            reason: one_line(&reason.to_string()),
        }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.origin)?;
        match (self.key.as_str(), self.value.as_str()) {
            ("", _) => {}
            (key, "") => write!(f, "`{key}`: ")?,
            (key, value) => write!(f, "`{key}` = {value}: ")?,
        }
        f.write_str(&self.reason)
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::File { name, line: 0 } => f.write_str(name),
            Origin::File { name, line } => write!(f, "{name}:{line}"),
            Origin::Env(name) => write!(f, "env {name}"),
            Origin::Cli => f.write_str("--set"),
        }
    }
}

struct Reader {
    keys: Vec<KeyDecl>,
    set: BTreeMap<String, (Value, Origin)>,
    errors: Vec<ConfigError>,
}

impl Reader {
    // ------------------------------------------------------------------------------------- file

    fn read_file(&mut self, name: &str, text: &str) {
        let at = |offset: usize| Origin::File {
            name: name.to_owned(),
            line: 1 + text.bytes().take(offset).filter(|b| *b == b'\n').count(),
        };
        match DeTable::parse(text) {
            Ok(table) => self.read_table("", table.get_ref(), &at),
            Err(error) => {
                let origin = at(error.span().map_or(0, |s| s.start));
                let why = format!("not valid TOML: {}", error.message());
                self.errors.push(ConfigError::new(&origin, "", "", why));
            }
        }
    }

    fn read_table(&mut self, path: &str, table: &DeTable<'_>, at: &dyn Fn(usize) -> Origin) {
        // The parser's map is ordered by name; errors should come in the order of the file.
        let mut entries: Vec<_> = table.iter().collect();
        entries.sort_by_key(|(name, _)| name.span().start);
        for (name, value) in entries {
            let name: &Spanned<Cow<'_, str>> = name;
            let origin = at(name.span().start);
            let key = match path {
                "" => name.get_ref().to_string(),
                path => format!("{path}.{}", name.get_ref()),
            };
            let section = format!("{key}.");
            match value.get_ref() {
                DeValue::Table(inner) if self.keys.iter().any(|k| k.name.starts_with(&section)) => {
                    self.read_table(&key, inner, at);
                }
                other => match to_value(other) {
                    Ok(value) => self.put(&key, value, origin),
                    Err(why) => self.errors.push(ConfigError::new(&origin, key, "", why)),
                },
            }
        }
    }

    // ------------------------------------------------------------------------ environment, flags

    fn read_env(&mut self, prefix: &str, env: &[(String, String)]) {
        for (name, text) in env {
            let Some(rest) = name.strip_prefix(prefix) else {
                continue;
            };
            let origin = Origin::Env(name.clone());
            let found = self.keys.iter().find(|k| env_name(&k.name) == rest);
            match found.map(|k| k.name.clone()) {
                Some(key) => self.put_text(&key, text, origin),
                None => {
                    let near = self.nearest(&rest.to_ascii_lowercase().replace("__", "."));
                    let hint = near.map(|key| format!("{prefix}{}", env_name(&key)));
                    let why = unknown(hint.as_deref());
                    self.errors.push(ConfigError::new(&origin, "", "", why));
                }
            }
        }
    }

    fn read_cli(&mut self, flags: &[String]) {
        let mut seen = Vec::new();
        for flag in flags {
            let Some((key, text)) = flag.split_once('=') else {
                let why = format!("expected key=value, got {}", shown(flag, false));
                self.errors
                    .push(ConfigError::new(&Origin::Cli, "", "", why));
                continue;
            };
            if seen.contains(&key) {
                let why = "given twice";
                self.errors
                    .push(ConfigError::new(&Origin::Cli, key, "", why));
                continue;
            }
            seen.push(key);
            self.put_text(key, text, Origin::Cli);
        }
    }

    /// Text has no type of its own: it is taken literally if the key takes text, else as a TOML value.
    fn put_text(&mut self, key: &str, text: &str, origin: Origin) {
        let literal = Value::String(text.to_owned());
        let takes = |value: &Value| {
            let decl = self.keys.iter().find(|k| k.name == key);
            decl.is_some_and(|k| k.check(value).is_ok())
        };
        if takes(&literal) {
            return self.put(key, literal, origin);
        }
        let parsed = toml::from_str::<toml::Table>(&format!("v = {text}"));
        let parsed = parsed.ok().and_then(|mut table| {
            let value = table.remove("v")?;
            table.is_empty().then_some(value)
        });
        self.put(key, parsed.unwrap_or(literal), origin);
    }

    fn put(&mut self, key: &str, value: Value, origin: Origin) {
        let Some(decl) = self.keys.iter().find(|k| k.name == key) else {
            let why = unknown(self.nearest(key).as_deref());
            self.errors.push(ConfigError::new(&origin, key, "", why));
            return;
        };
        if let Err(why) = decl.check(&value) {
            let value = shown(&value.to_string(), decl.secret);
            // What serde says may quote the value.
            let why = if decl.secret {
                format!("expected {}", decl.kind)
            } else {
                why
            };
            self.errors.push(ConfigError::new(&origin, key, value, why));
            return;
        }
        self.set.insert(key.to_owned(), (value, origin));
    }

    /// The declared key that a misspelt one was probably meant to be.
    fn nearest(&self, wrong: &str) -> Option<String> {
        let last = |key: &str| key.rsplit('.').next().unwrap_or_default().to_owned();
        let by_name = self.keys.iter().map(|k| {
            let whole = distance(wrong, &k.name);
            // The right key in the wrong section is as near as one wrong letter.
            let moved = if last(wrong) == last(&k.name) {
                1
            } else {
                usize::MAX
            };
            (whole.min(moved), &k.name)
        });
        let (distance, name) = by_name.min()?;
        (distance <= 1 + wrong.len() / 5).then(|| name.clone())
    }
}

fn unknown(near: Option<&str>) -> String {
    match near {
        Some(near) => format!("unknown key; did you mean `{near}`?"),
        None => "unknown key".to_owned(),
    }
}

/// `audit.checkpoint_every_ops` is `AUDIT__CHECKPOINT_EVERY_OPS` after the service's prefix.
fn env_name(key: &str) -> String {
    key.to_ascii_uppercase().replace('.', "__")
}

fn insert(tree: &mut toml::Table, key: &str, value: Value) {
    match key.split_once('.') {
        None => {
            tree.insert(key.to_owned(), value);
        }
        Some((section, rest)) => {
            let inner = tree
                .entry(section)
                .or_insert_with(|| Value::Table(toml::Table::new()));
            if let Value::Table(inner) = inner {
                insert(inner, rest, value);
            }
        }
    }
}

fn to_value(parsed: &DeValue<'_>) -> Result<Value, String> {
    Ok(match parsed {
        DeValue::String(text) => Value::String(text.to_string()),
        DeValue::Boolean(b) => Value::Boolean(*b),
        DeValue::Datetime(d) => Value::Datetime(*d),
        DeValue::Integer(i) => Value::Integer(
            i64::from_str_radix(i.as_str(), i.radix()).map_err(|_| "integer out of range")?,
        ),
        DeValue::Float(f) => Value::Float(f.as_str().parse().map_err(|_| "number out of range")?),
        DeValue::Array(items) => {
            let items = items.iter().map(|item| to_value(item.get_ref()));
            Value::Array(items.collect::<Result<_, _>>()?)
        }
        DeValue::Table(table) => {
            let entries = table
                .iter()
                .map(|(name, value)| Ok((name.get_ref().to_string(), to_value(value.get_ref())?)));
            Value::Table(entries.collect::<Result<_, String>>()?)
        }
    })
}

fn shown(value: &str, secret: bool) -> String {
    const LONGEST: usize = 80;
    if secret {
        return "(secret)".to_owned();
    }
    let line = one_line(value);
    match line.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

fn one_line(text: &str) -> String {
    let text = text.trim();
    let escaped = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    escaped.collect()
}

/// Edit distance, over keys that are at most a few dozen letters long.
fn distance(a: &str, b: &str) -> usize {
    const LONGEST: usize = 128;
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    if a.len() > LONGEST || b.len() > LONGEST {
        return usize::MAX;
    }
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut corner = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let change = corner + usize::from(x != y);
            corner = row[j + 1];
            row[j + 1] = change.min(corner + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
#[path = "load_tests.rs"]
mod tests;
