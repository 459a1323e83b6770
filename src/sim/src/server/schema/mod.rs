//! What the server knows of the shape of objects, read from `types.txt`. One source for the check of unknown fields, the
//! merge rules of strategic merge and server-side apply, and the OpenAPI documents.

mod conform;

use std::collections::{BTreeMap, HashMap};
use std::sync::LazyLock;

pub(crate) use conform::conform;

/// The form of one value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Shape {
    Struct(&'static str),
    List(Box<Shape>),
    Map(Box<Shape>),
    Leaf(Leaf),
}

/// A value without parts that the server would look into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leaf {
    Text,
    Bool,
    Int32,
    Int64,
    Number,
    Time,
    MicroTime,
    Quantity,
    IntOrString,
    Bytes,
    Any,
}

/// How two values of one field become one.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) enum Merge {
    /// Lists are replaced, maps and structs are merged field by field.
    #[default]
    Plain,
    /// A map that is replaced as a whole.
    Atomic,
    /// A list of distinct values.
    Set,
    /// A list of objects told apart by these fields; for server-side apply only where `apply_only`.
    Keys { keys: Vec<&'static str>, apply_only: bool },
}

/// One field of a type.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Field {
    pub(crate) shape: Shape,
    pub(crate) required: bool,
    pub(crate) merge: Merge,
}

/// A struct of the API.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Type {
    pub(crate) fields: BTreeMap<&'static str, Field>,
    /// Fields that are not named here are kept.
    pub(crate) open: bool,
}

/// All types by name, as `core.v1.Pod`.
#[derive(Debug, Default)]
pub(crate) struct Schema {
    pub(crate) types: HashMap<&'static str, Type>,
}

static SCHEMA: LazyLock<Schema> = LazyLock::new(|| parse(include_str!("types.txt")).unwrap_or_default());
static ANY: Field = Field { shape: Shape::Leaf(Leaf::Any), required: false, merge: Merge::Plain };

/// The types that ship with the server.
pub(crate) fn schema() -> &'static Schema {
    &SCHEMA
}

/// A place in the schema, moved along with a walk through an object.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cursor<'a> {
    schema: &'a Schema,
    pub(crate) shape: &'a Shape,
    pub(crate) merge: &'a Merge,
}

impl Schema {
    /// The cursor at the top of a type.
    pub(crate) fn root(&self, name: &str) -> Cursor<'_> {
        let shape = self.types.get_key_value(name).and_then(|(name, _)| ROOTS.get(name)).unwrap_or(&ANY.shape);
        Cursor { schema: self, shape, merge: &ANY.merge }
    }
}

static ROOTS: LazyLock<HashMap<&'static str, Shape>> =
    LazyLock::new(|| SCHEMA.types.keys().map(|name| (*name, Shape::Struct(name))).collect());

impl<'a> Cursor<'a> {
    /// The struct here, if it is one.
    pub(crate) fn strukt(self) -> Option<&'a Type> {
        match self.shape {
            Shape::Struct(name) => self.schema.types.get(name),
            _ => None,
        }
    }

    /// The cursor at a field or map entry; none if the type here has no such field.
    pub(crate) fn field(self, name: &str) -> Option<Self> {
        match self.shape {
            Shape::Struct(_) => {
                let here = self.strukt()?;
                match here.fields.get(name) {
                    Some(field) => Some(self.to(field)),
                    None => here.open.then(|| self.to(&ANY)),
                }
            }
            Shape::Map(inner) => Some(Cursor { shape: inner, merge: &ANY.merge, ..self }),
            _ => Some(self.to(&ANY)),
        }
    }

    /// The cursor at a field, where unknown fields count as open.
    pub(crate) fn child(self, name: &str) -> Self {
        self.field(name).unwrap_or_else(|| self.to(&ANY))
    }

    /// The cursor at an item of the list here.
    pub(crate) fn item(self) -> Self {
        match self.shape {
            Shape::List(inner) => Cursor { shape: inner, merge: &ANY.merge, ..self },
            _ => self.to(&ANY),
        }
    }

    /// Whether an object here is merged field by field.
    pub(crate) fn granular(self) -> bool {
        !matches!(self.merge, Merge::Atomic)
    }

    fn to(self, field: &'a Field) -> Self {
        Cursor { shape: &field.shape, merge: &field.merge, ..self }
    }
}

/// Reads the table of types; the error names the line.
fn parse(text: &'static str) -> Result<Schema, String> {
    let mut schema = Schema::default();
    for (number, line) in text.lines().enumerate() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let mut words = line.split(' ');
        let name = words.next().unwrap_or_default();
        let package = name.rsplit_once('.').map_or("", |(package, _)| package);
        let mut found = Type::default();
        for word in words {
            if word == "*" {
                found.open = true;
            } else {
                let (field, value) =
                    parse_field(word, package).ok_or_else(|| format!("line {}: {word}", number + 1))?;
                found.fields.insert(field, value);
            }
        }
        schema.types.insert(name, found);
    }
    Ok(schema)
}

fn parse_field(word: &'static str, package: &str) -> Option<(&'static str, Field)> {
    let (name, rest) = word.split_once(':')?;
    let (shape, merge) = rest.split_once('@').unwrap_or((rest, ""));
    let field = Field { shape: parse_shape(shape, package)?, required: name.ends_with('!'), merge: parse_merge(merge) };
    Some((name.trim_end_matches('!'), field))
}

fn parse_merge(text: &'static str) -> Merge {
    match text {
        "" => Merge::Plain,
        "set" => Merge::Set,
        "atomic" => Merge::Atomic,
        keys => {
            Merge::Keys { keys: keys.trim_start_matches('@').split(',').collect(), apply_only: keys.starts_with('@') }
        }
    }
}

fn parse_shape(text: &'static str, package: &str) -> Option<Shape> {
    if let Some(inner) = text.strip_prefix('[') {
        return Some(Shape::List(Box::new(parse_shape(inner.strip_suffix(']')?, package)?)));
    }
    if let Some(inner) = text.strip_prefix('{') {
        return Some(Shape::Map(Box::new(parse_shape(inner.strip_suffix('}')?, package)?)));
    }
    Some(Shape::Leaf(match text {
        "string" => Leaf::Text,
        "bool" => Leaf::Bool,
        "int32" => Leaf::Int32,
        "int64" => Leaf::Int64,
        "number" => Leaf::Number,
        "time" => Leaf::Time,
        "microtime" => Leaf::MicroTime,
        "quantity" => Leaf::Quantity,
        "intstr" => Leaf::IntOrString,
        "bytes" => Leaf::Bytes,
        "any" => Leaf::Any,
        name => return Some(Shape::Struct(type_name(name, package))),
    }))
}

/// The full name of a type; a bare one belongs to the package of the line. Names live as long as the program, so a
/// joined one is kept for good (a few kilobytes, once).
fn type_name(name: &'static str, package: &str) -> &'static str {
    if name.contains('.') { name } else { Box::leak(format!("{package}.{name}").into_boxed_str()) }
}

#[cfg(test)]
mod tests;
