use super::*;

#[test]
fn the_shipped_table_is_whole() {
    let schema = parse(include_str!("types.txt")).unwrap();
    assert!(schema.types.len() > 250);
    for (name, found) in &schema.types {
        for (field, value) in &found.fields {
            let mut shape = &value.shape;
            while let Shape::List(inner) | Shape::Map(inner) = shape {
                shape = inner;
            }
            if let Shape::Struct(target) = shape {
                assert!(schema.types.contains_key(target), "{name}.{field} points to {target}");
            }
        }
    }
}

#[test]
fn merge_rules_are_found_by_walking() {
    let pod = schema().root("core.v1.Pod");
    let containers = pod.child("spec").child("containers");
    assert_eq!(containers.merge, &Merge::Keys { keys: vec!["name"], apply_only: false });
    let ports = containers.item().child("ports");
    assert_eq!(ports.merge, &Merge::Keys { keys: vec!["containerPort", "protocol"], apply_only: false });
    assert_eq!(pod.child("spec").child("tolerations").merge, &Merge::Plain);
    assert_eq!(schema().root("core.v1.Node").child("spec").child("taints").merge, &Merge::Plain);
    assert_eq!(pod.child("metadata").child("finalizers").merge, &Merge::Set);
}

#[test]
fn unknown_fields_are_told_from_open_ones() {
    let schema = schema();
    assert!(schema.root("core.v1.Pod").field("spek").is_none());
    assert!(schema.root("core.v1.Pod").child("metadata").child("labels").field("anything").is_some());
    assert!(schema.root("custom.Object").field("spec").is_some());
    assert!(schema.root("no.such.Type").field("x").is_some());
}

/// A deserializer that only tells which fields a struct asks for.
struct Asked;

#[derive(Debug)]
struct Fields(Vec<&'static str>);

impl std::fmt::Display for Fields {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.join(" "))
    }
}

impl std::error::Error for Fields {}

impl serde::de::Error for Fields {
    fn custom<T: std::fmt::Display>(_: T) -> Self {
        Self(Vec::new())
    }
}

impl<'de> serde::Deserializer<'de> for Asked {
    type Error = Fields;

    fn deserialize_any<V: serde::de::Visitor<'de>>(self, _: V) -> Result<V::Value, Fields> {
        Err(Fields(Vec::new()))
    }

    fn deserialize_struct<V: serde::de::Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Fields> {
        Err(Fields(fields.to_vec()))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit unit_struct newtype_struct
        seq tuple tuple_struct map enum identifier ignored_any
    }
}

fn same<'de, T: serde::Deserialize<'de> + std::fmt::Debug>(name: &str) {
    let mut asked = T::deserialize(Asked).unwrap_err().0;
    asked.sort_unstable();
    let known: Vec<&str> = schema().types[name].fields.keys().copied().collect();
    assert_eq!(known, asked, "{name}");
}

#[test]
fn the_table_has_the_fields_of_the_typed_api() {
    use k8s_openapi::api::{coordination, core, policy, resource};
    same::<core::v1::NodeSpec>("core.v1.NodeSpec");
    same::<core::v1::NodeStatus>("core.v1.NodeStatus");
    same::<core::v1::Taint>("core.v1.Taint");
    same::<core::v1::PodSpec>("core.v1.PodSpec");
    same::<core::v1::PodStatus>("core.v1.PodStatus");
    same::<core::v1::Container>("core.v1.Container");
    same::<core::v1::Toleration>("core.v1.Toleration");
    same::<coordination::v1::LeaseSpec>("coordination.v1.LeaseSpec");
    same::<policy::v1::PodDisruptionBudgetSpec>("policy.v1.PodDisruptionBudgetSpec");
    same::<resource::v1::ResourceSliceSpec>("resource.v1.ResourceSliceSpec");
    same::<resource::v1::Device>("resource.v1.Device");
    same::<resource::v1::DeviceTaint>("resource.v1.DeviceTaint");
    same::<resource::v1::DeviceTaintRuleSpec>("resource.v1.DeviceTaintRuleSpec");
    same::<resource::v1::DeviceTaintSelector>("resource.v1.DeviceTaintSelector");
    same::<resource::v1::ExactDeviceRequest>("resource.v1.ExactDeviceRequest");
    same::<resource::v1::DeviceToleration>("resource.v1.DeviceToleration");
    same::<resource::v1::ResourceClaimStatus>("resource.v1.ResourceClaimStatus");
    same::<resource::v1::DeviceRequestAllocationResult>("resource.v1.DeviceRequestAllocationResult");
}
