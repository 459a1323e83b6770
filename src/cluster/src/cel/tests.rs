//! Expressions of the kind that the documentation of Kubernetes and of NVIDIA's driver shows.

use proptest::prelude::*;
use taints::object::{Attribute, Device};

use super::*;

const DRIVER: &str = "gpu.devicetaint.dev";

fn a100() -> Device {
    let text = |text: &str| Attribute::String(text.to_owned());
    let attributes = [
        ("gpu.nvidia.com/type", text("gpu")),
        ("gpu.nvidia.com/uuid", text("GPU-6b4f7a52-0000-1111-2222-333344445555")),
        ("gpu.nvidia.com/productName", text("NVIDIA A100-SXM4-40GB")),
        ("gpu.nvidia.com/architecture", text("Ampere")),
        ("gpu.nvidia.com/cudaComputeCapability", Attribute::Version("8.0.0".to_owned())),
        ("gpu.nvidia.com/driverVersion", Attribute::Version("580.95.5".to_owned())),
        ("resource.kubernetes.io/pcieRoot", text("pci0000:3a")),
        ("resource.kubernetes.io/numaNode", Attribute::Int(1)),
        ("healthy", Attribute::Bool(true)),
    ];
    Device {
        name: "gpu-0000-3b-00-0".to_owned(),
        attributes: attributes.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
        capacity: [("gpu.nvidia.com/memory".to_owned(), "40Gi".to_owned())].into(),
        ..Device::default()
    }
}

fn select(expression: &str) -> Result<bool, CelError> {
    Selector::compile(expression)?.matches(&a100(), DRIVER)
}

#[test]
fn expressions_that_match() {
    for expression in [
        r#"device.driver == "gpu.devicetaint.dev""#,
        r"device.driver == 'gpu.devicetaint.dev' && device.attributes['gpu.nvidia.com'].type == 'gpu'",
        r#"device.attributes["gpu.nvidia.com"].productName.lowerAscii().matches("^.*a100.*$")"#,
        r#"device.attributes["gpu.nvidia.com"].productName.startsWith("NVIDIA A100")"#,
        r#"device.attributes["gpu.nvidia.com"].architecture in ["Ampere", "Hopper"]"#,
        r#"device.attributes["gpu.nvidia.com"]["uuid"] == "GPU-6b4f7a52-0000-1111-2222-333344445555""#,
        r#"device.attributes["gpu.devicetaint.dev"].healthy"#,
        r#"device.attributes["resource.kubernetes.io"].numaNode == 1"#,
        r#"device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("40Gi")) == 0"#,
        r#"device.capacity["gpu.nvidia.com"].memory.isGreaterThan(quantity("39.5Gi"))"#,
        r#"device.capacity["gpu.nvidia.com"].memory == quantity("42949672960")"#,
        r#"device.capacity["gpu.nvidia.com"].memory.asInteger() > 40000000000"#,
        r#"device.capacity["gpu.nvidia.com"].memory.sub(quantity("8Gi")).add(1).isLessThan(quantity("33Gi"))"#,
        r#"device.attributes["gpu.nvidia.com"].driverVersion.isGreaterThan(semver("580.82.7"))"#,
        r#"device.attributes["gpu.nvidia.com"].cudaComputeCapability.compareTo(semver("8.0.0")) >= 0"#,
        r#"device.attributes["gpu.nvidia.com"].cudaComputeCapability.major() == 8"#,
        r#"semver("v1.0", true) == semver("1.0.0+build") && !isSemver("v1.0") && isSemver("v1.0", true)"#,
        r#"isQuantity("1Gi") && !isQuantity("1gb") && quantity("1500m").isInteger() == false"#,
        r#"cel.bind(gpu, device.attributes["gpu.nvidia.com"], gpu.type == "gpu" && has(gpu.uuid))"#,
        r#"device.attributes["gpu.nvidia.com"].?mig.orValue("none") == "none""#,
        r#"device.attributes[?"gpu.nvidia.com"].?type.orValue("") == "gpu""#,
        r#"!has(device.attributes["no.such.domain"].x)"#,
        r#"device.attributes["no.such.domain"].?x.hasValue() == false"#,
        r#"!("no.such.domain" in device.attributes) && "gpu.nvidia.com" in device.attributes"#,
        r#"device.attributes.exists(domain, domain == "resource.kubernetes.io")"#,
        r#"device.attributes["gpu.nvidia.com"].type == "gpu" || device.attributes["x"].y"#,
        r"device.allowMultipleAllocations == false",
        "true",
    ] {
        assert_eq!(select(expression), Ok(true), "{expression}");
    }
}

#[test]
fn expressions_that_do_not_match() {
    for expression in [
        r#"device.driver == "gpu.nvidia.com""#,
        r#"device.attributes["gpu.nvidia.com"].type == "mig""#,
        r#"device.capacity["gpu.nvidia.com"].memory.isGreaterThan(quantity("80Gi"))"#,
        r#"device.attributes["gpu.nvidia.com"].driverVersion.isLessThan(semver("570.0.0"))"#,
        r#"has(device.attributes["gpu.nvidia.com"].mig) && device.attributes["gpu.nvidia.com"].mig == "1g.5gb""#,
        r#"device.attributes["x"].y && false"#,
        r#"device.attributes["gpu.nvidia.com"].type == 1"#,
        "false",
    ] {
        assert_eq!(select(expression), Ok(false), "{expression}");
    }
}

#[test]
fn an_evaluation_error_is_not_a_no() {
    for expression in [
        r#"device.attributes["gpu.nvidia.com"].mig == "1g.5gb""#,
        r#"device.attributes["no.such.domain"].x"#,
        r#"device.capacity["gpu.nvidia.com"].cores.compareTo(quantity("1")) > 0"#,
        r#"device.attributes["gpu.nvidia.com"].driverVersion.isGreaterThan("580.0.0")"#,
        r#"quantity("lots") == quantity("1")"#,
        r#"semver("1.0") == semver("1.0.0")"#,
        "device.serial == 'x'",
        "1 / 0 == 1",
    ] {
        assert!(matches!(select(expression), Err(CelError::Evaluate { .. })), "{expression}: {:?}", select(expression));
    }
}

#[test]
fn a_selector_must_give_a_truth_value() {
    for expression in ["device.driver", "1", r#"device.attributes["gpu.nvidia.com"]"#] {
        let error = select(expression).expect_err(expression);
        assert!(matches!(error, CelError::NotBool { .. }), "{expression}: {error}");
    }
}

#[test]
fn what_does_not_parse_says_where_in_one_line() {
    for expression in ["device.driver ==", "", "device.attributes[", "a b", "cel.bind(1, 2, true)", "'unclosed"] {
        let error = Selector::compile(expression).expect_err(expression);
        assert!(matches!(error, CelError::Compile { .. }), "{expression}: {error}");
        assert!(!error.to_string().contains('\n'), "{error}");
    }
}

#[test]
fn a_version_that_is_none_names_the_attribute() {
    let mut device = a100();
    device.attributes.insert("gpu.nvidia.com/driverVersion".to_owned(), Attribute::Version("580.95.05".to_owned()));
    let selector = Selector::compile("true").expect("compiles");
    let error = selector.matches(&device, DRIVER).expect_err("leading zero");
    assert!(error.to_string().contains("attributes[gpu.nvidia.com/driverVersion]"), "{error}");
}

/// The longest form of a shape that is still compiled, and the next one, which is refused.
fn at_the_limit(shape: impl Fn(usize) -> String) -> (String, String) {
    let fits = |n: &usize| depth::depth(&shape(*n)) <= MAX_DEPTH;
    let longest = (1..=MAX_DEPTH).take_while(fits).last().expect("one level fits");
    (shape(longest), shape(longest + 1))
}

#[test]
fn what_is_not_too_deep_fits_a_small_stack() {
    let nested =
        |open: &'static str, close: &'static str| move |n: usize| format!("{}true{}", open.repeat(n), close.repeat(n));
    let chained = |link: &'static str| move |n: usize| format!("device{}", link.repeat(n));
    let shapes: Vec<Box<dyn Fn(usize) -> String>> = vec![
        Box::new(nested("(", ")")),
        Box::new(nested("[", "]")),
        Box::new(nested("!(", ")")),
        Box::new(nested("{'a':", "}")),
        Box::new(nested("true && (", ")")),
        Box::new(nested("[true].all(x,", ")")),
        Box::new(nested("cel.bind(x, true, ", ")")),
        Box::new(nested("true ? true : ", "")),
        Box::new(chained("+1")),
        Box::new(chained(".a")),
        Box::new(chained("[0]")),
        Box::new(chained(".f()")),
        Box::new(chained(" in x")),
    ];
    for shape in shapes {
        let (fits, too_deep) = at_the_limit(shape);
        assert_eq!(Selector::compile(&too_deep).err(), Some(CelError::TooDeep), "{too_deep}");
        let thread = std::thread::Builder::new().stack_size(1536 * 1024);
        let answer = thread.spawn(move || select(&fits).map_err(|error| error.to_string())).expect("a thread").join();
        assert!(!matches!(answer, Ok(Err(ref error)) if error.contains("thread")), "{answer:?}");
    }
}

#[test]
fn long_expressions_of_many_terms_are_answered() {
    for term in ["||true", "&&true", " && device.driver == 'x'"] {
        let expression = format!("true{}", term.repeat(400));
        assert!(select(&expression).is_ok(), "{term}");
    }
    let too_long = format!("true{}", "||true".repeat(1_800));
    assert_eq!(Selector::compile(&too_long).err(), Some(CelError::TooLong(too_long.len())));
}

proptest! {
    #[test]
    fn no_expression_panics(expression in r#"[a-z0-9.()\[\]{}"'!?:&|<>=+*/, -]{0,40}"#) {
        if let Err(error) = select(&expression) {
            prop_assert!(!error.to_string().is_empty());
        }
    }
}
