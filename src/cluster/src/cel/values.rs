//! The values that an expression sees: the device with its attributes and capacity by domain, quantities and versions.

use std::any::Any;
use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap};

use cel::ExecutionError;
use cel::common::traits::{Container, Indexer, Iterable, Iterator, Sizer};
use cel::common::types::{CelBool, CelInt, CelMap, CelMapKey, CelString, MAP_TYPE, Type};
use cel::common::value::{CowVal, StaticVal, Val};
use taints::object::{Attribute, Device};

use super::quantity::Quantity;

static QUANTITY: Type = Type::new_unspecified_type("kubernetes.Quantity");
static SEMVER: Type = Type::new_unspecified_type("kubernetes.Semver");

/// Why a device has no value: which of its fields does not say what its type promises.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct FieldError {
    /// The field, such as `attributes[gpu.nvidia.com/driverVersion]`.
    pub field: String,
    /// What is wrong with it.
    pub problem: String,
}

/// The variable `device` (resource/v1 `CELDeviceSelector`): `driver`, `attributes`, `capacity`, `allowMultipleAllocations`.
pub(super) fn device(device: &Device, driver: &str) -> Result<Box<dyn Val>, FieldError> {
    let mut attributes = Domains::default();
    for (name, attribute) in &device.attributes {
        attributes.insert(name, driver, attribute_value(name, attribute)?);
    }
    let mut capacity = Domains::default();
    for (name, amount) in &device.capacity {
        let quantity: Quantity = amount.parse().map_err(|error: super::quantity::QuantityError| FieldError {
            field: format!("capacity[{name}]"),
            problem: error.to_string(),
        })?;
        capacity.insert(name, driver, Box::new(QuantityVal(quantity)));
    }
    let fields: [(&str, Box<dyn Val>); 4] = [
        ("driver", Box::new(CelString::from(driver.to_owned()))),
        ("attributes", Box::new(attributes.into_value())),
        ("capacity", Box::new(capacity.into_value())),
        ("allowMultipleAllocations", Box::new(CelBool::from(device.allow_multiple_allocations))),
    ];
    Ok(Box::new(map(fields.into_iter().map(|(name, value)| (name.to_owned(), value)))))
}

fn attribute_value(name: &str, attribute: &Attribute) -> Result<Box<dyn Val>, FieldError> {
    Ok(match attribute {
        Attribute::Bool(value) => Box::new(CelBool::from(*value)),
        Attribute::Int(value) => Box::new(CelInt::from(*value)),
        Attribute::String(value) => Box::new(CelString::from(value.clone())),
        Attribute::Version(value) => {
            Box::new(SemverVal(semver::Version::parse(value).map_err(|error| FieldError {
                field: format!("attributes[{name}]"),
                problem: format!("{value:?} is not a semantic version: {error}"),
            })?))
        }
    })
}

fn map(fields: impl IntoIterator<Item = (String, Box<dyn Val>)>) -> CelMap<'static> {
    let entries: HashMap<CelMapKey<'static>, Box<dyn Val>> =
        fields.into_iter().map(|(name, value)| (CelMapKey::String(CelString::from(name)), value)).collect();
    CelMap::from(entries)
}

/// Collects values by domain. A bare name is of the driver's domain.
#[derive(Default)]
struct Domains(BTreeMap<String, BTreeMap<String, Box<dyn Val>>>);

impl Domains {
    fn insert(&mut self, qualified: &str, driver: &str, value: Box<dyn Val>) {
        let (domain, name) = qualified.split_once('/').unwrap_or((driver, qualified));
        self.0.entry(domain.to_owned()).or_default().insert(name.to_owned(), value);
    }

    fn into_value(self) -> DomainsVal {
        let domains = self.0.into_iter().map(|(domain, fields)| (domain, Box::new(map(fields)) as Box<dyn Val>));
        DomainsVal { known: map(domains), empty: CelMap::default() }
    }
}

/// A map by domain in which every domain exists: one that the device does not have is an empty map, so that `has(...)` and
/// `.?` work on it, and only the look-up of an attribute fails (as in Kubernetes' own evaluation).
#[derive(Clone, Debug)]
struct DomainsVal {
    known: CelMap<'static>,
    empty: CelMap<'static>,
}

impl Val for DomainsVal {
    fn get_type(&self) -> &Type {
        &MAP_TYPE
    }

    fn cel_type() -> &'static Type {
        &MAP_TYPE
    }

    fn as_container(&self) -> Option<&dyn Container> {
        Some(&self.known)
    }

    fn as_indexer<'b, 'v>(&'b self) -> Option<&'b (dyn Indexer + 'v)>
    where
        Self: 'v,
    {
        Some(self)
    }

    fn as_iterable<'b, 'v>(&'b self) -> Option<&'b (dyn Iterable + 'v)>
    where
        Self: 'v,
    {
        Some(self)
    }

    fn as_sizer(&self) -> Option<&dyn Sizer> {
        Some(&self.known)
    }

    fn clone_as_boxed<'v>(&self) -> Box<dyn Val + 'v>
    where
        Self: 'v,
    {
        Box::new(self.clone())
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}

impl StaticVal for DomainsVal {}

impl Indexer for DomainsVal {
    fn get<'b, 'v>(&'b self, key: &dyn Val) -> Result<CowVal<'b, 'v>, ExecutionError>
    where
        Self: 'v,
    {
        match self.known.get(key) {
            Err(ExecutionError::NoSuchKey(_)) => Ok(CowVal::Borrowed(&self.empty)),
            found => found,
        }
    }

    fn steal<'v>(self: Box<Self>, key: &dyn Val) -> Result<Box<dyn Val + 'v>, ExecutionError>
    where
        Self: 'v,
    {
        self.get(key).map(CowVal::into_owned)
    }
}

impl Iterable for DomainsVal {
    fn iter<'b, 'v>(&'b self) -> Box<dyn Iterator<'b, 'v> + 'b>
    where
        Self: 'v,
    {
        Iterable::iter(&self.known)
    }
}

/// An opaque value with an order, of a named type.
macro_rules! opaque_value {
    ($(#[$doc:meta])* $name:ident($inner:ty), $ty:ident, $compare:expr) => {
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub(super) struct $name(pub(super) $inner);

        impl $name {
            pub(super) fn order(&self, other: &Self) -> Ordering {
                $compare(&self.0, &other.0)
            }
        }

        impl Val for $name {
            fn get_type(&self) -> &Type {
                &$ty
            }

            fn cel_type() -> &'static Type {
                &$ty
            }

            fn equals(&self, other: &dyn Val) -> bool {
                other.downcast_ref::<Self>().is_some_and(|other| self.order(other).is_eq())
            }

            fn clone_as_boxed<'v>(&self) -> Box<dyn Val + 'v>
            where
                Self: 'v,
            {
                Box::new(self.clone())
            }

            fn as_any(&self) -> Option<&dyn Any> {
                Some(self)
            }
        }

        impl StaticVal for $name {}
    };
}

opaque_value!(
    /// A capacity, or what `quantity("40Gi")` gives.
    QuantityVal(Quantity),
    QUANTITY,
    Quantity::cmp
);
opaque_value!(
    /// A version attribute, or what `semver("1.2.3")` gives. Build metadata does not take part in the order.
    SemverVal(semver::Version),
    SEMVER,
    semver::Version::cmp_precedence
);
