//! What Kubernetes adds to CEL for device selectors: `quantity()`, `semver()` with their methods, and `cel.bind()`.

use std::cmp::Ordering;
use std::sync::{Arc, LazyLock};

use cel::common::ast::{ComprehensionExpr, Expr, ListExpr, LiteralValue};
use cel::common::types::{CelBool, CelDouble, CelInt, CelString};
use cel::parser::{Macro, MacroExprHelper};
use cel::{DeclarationError, Env, ExecutionError, IdedExpr, ParseError, add_member_overload, add_overload, extensions};

use super::quantity::Quantity;
use super::values::{QuantityVal, SemverVal};

/// The environment of every selector, built once.
pub(super) fn environment() -> Result<Arc<Env>, DeclarationError> {
    static ENVIRONMENT: LazyLock<Result<Arc<Env>, DeclarationError>> = LazyLock::new(|| build().map(Arc::new));
    ENVIRONMENT.clone()
}

fn build() -> Result<Env, DeclarationError> {
    let mut env = Env::stdlib();
    env.add_extension(extensions::strings)?;
    env.add_extension(extensions::lists)?;
    env.add_extension(quantities)?;
    env.add_extension(versions)?;
    env.add_macro(Macro::receiver("bind", 3, bind))?;
    Ok(env)
}

fn quantities(env: &mut Env) -> Result<(), DeclarationError> {
    add_overload!(env, fn quantity: (CelString<'_>) -> Result<QuantityVal>)?;
    add_overload!(env, fn is_quantity: (CelString<'_>) -> CelBool)?;
    add_member_overload!(env, fn sign: (QuantityVal) -> CelInt)?;
    add_member_overload!(env, fn is_integer: (QuantityVal) -> CelBool)?;
    add_member_overload!(env, fn as_integer: (QuantityVal) -> Result<CelInt>)?;
    add_member_overload!(env, fn as_approximate_float: (QuantityVal) -> CelDouble)?;
    add_member_overload!(env, fn add: (QuantityVal, QuantityVal) -> Result<QuantityVal>)?;
    add_member_overload!(env, fn add_units: (QuantityVal, CelInt) -> Result<QuantityVal>, name = "add")?;
    add_member_overload!(env, fn sub: (QuantityVal, QuantityVal) -> Result<QuantityVal>)?;
    add_member_overload!(env, fn sub_units: (QuantityVal, CelInt) -> Result<QuantityVal>, name = "sub")?;
    add_member_overload!(env, fn quantity_order: (QuantityVal, QuantityVal) -> CelInt, name = "compareTo")?;
    add_member_overload!(env, fn quantity_greater: (QuantityVal, QuantityVal) -> CelBool, name = "isGreaterThan")?;
    add_member_overload!(env, fn quantity_less: (QuantityVal, QuantityVal) -> CelBool, name = "isLessThan")?;
    Ok(())
}

fn versions(env: &mut Env) -> Result<(), DeclarationError> {
    add_overload!(env, fn semver: (CelString<'_>) -> Result<SemverVal>)?;
    add_overload!(env, fn semver_normalized: (CelString<'_>, CelBool) -> Result<SemverVal>, name = "semver")?;
    add_overload!(env, fn is_semver: (CelString<'_>) -> CelBool)?;
    add_overload!(env, fn is_semver_normalized: (CelString<'_>, CelBool) -> CelBool, name = "isSemver")?;
    add_member_overload!(env, fn major: (SemverVal) -> Result<CelInt>)?;
    add_member_overload!(env, fn minor: (SemverVal) -> Result<CelInt>)?;
    add_member_overload!(env, fn patch: (SemverVal) -> Result<CelInt>)?;
    add_member_overload!(env, fn semver_order: (SemverVal, SemverVal) -> CelInt, name = "compareTo")?;
    add_member_overload!(env, fn semver_greater: (SemverVal, SemverVal) -> CelBool, name = "isGreaterThan")?;
    add_member_overload!(env, fn semver_less: (SemverVal, SemverVal) -> CelBool, name = "isLessThan")?;
    Ok(())
}

fn quantity(text: &CelString<'_>) -> Result<QuantityVal, ExecutionError> {
    let quantity: Result<Quantity, _> = text.inner().parse();
    quantity.map(QuantityVal).map_err(|error| ExecutionError::function_error("quantity", error))
}

fn is_quantity(text: &CelString<'_>) -> CelBool {
    text.inner().parse::<Quantity>().is_ok().into()
}

fn sign(this: &QuantityVal) -> CelInt {
    this.0.sign().into()
}

fn is_integer(this: &QuantityVal) -> CelBool {
    this.0.units().is_some().into()
}

fn as_integer(this: &QuantityVal) -> Result<CelInt, ExecutionError> {
    let units = this.0.units().ok_or_else(|| format!("{} is not a 64-bit integer", this.0));
    units.map(CelInt::from).map_err(|error| ExecutionError::function_error("asInteger", error))
}

fn as_approximate_float(this: &QuantityVal) -> CelDouble {
    this.0.to_f64().into()
}

fn add(this: &QuantityVal, other: &QuantityVal) -> Result<QuantityVal, ExecutionError> {
    in_range("add", this.0.checked_add(other.0))
}

fn add_units(this: &QuantityVal, units: &CelInt) -> Result<QuantityVal, ExecutionError> {
    in_range("add", this.0.checked_add(Quantity::from_units(*units.inner())))
}

fn sub(this: &QuantityVal, other: &QuantityVal) -> Result<QuantityVal, ExecutionError> {
    in_range("sub", this.0.checked_sub(other.0))
}

fn sub_units(this: &QuantityVal, units: &CelInt) -> Result<QuantityVal, ExecutionError> {
    in_range("sub", this.0.checked_sub(Quantity::from_units(*units.inner())))
}

fn in_range(function: &str, result: Option<Quantity>) -> Result<QuantityVal, ExecutionError> {
    result.map(QuantityVal).ok_or_else(|| ExecutionError::function_error(function, "the result is out of range"))
}

/// -1, 0 or 1, as `compareTo` answers.
fn as_int(order: Ordering) -> CelInt {
    (order as i64).into()
}

fn quantity_order(this: &QuantityVal, other: &QuantityVal) -> CelInt {
    as_int(this.order(other))
}

fn quantity_greater(this: &QuantityVal, other: &QuantityVal) -> CelBool {
    this.order(other).is_gt().into()
}

fn quantity_less(this: &QuantityVal, other: &QuantityVal) -> CelBool {
    this.order(other).is_lt().into()
}

fn semver(text: &CelString<'_>) -> Result<SemverVal, ExecutionError> {
    parse_version(text.inner(), false)
}

fn semver_normalized(text: &CelString<'_>, normalize: &CelBool) -> Result<SemverVal, ExecutionError> {
    parse_version(text.inner(), *normalize.inner())
}

fn is_semver(text: &CelString<'_>) -> CelBool {
    parse_version(text.inner(), false).is_ok().into()
}

fn is_semver_normalized(text: &CelString<'_>, normalize: &CelBool) -> CelBool {
    parse_version(text.inner(), *normalize.inner()).is_ok().into()
}

fn parse_version(text: &str, normalize: bool) -> Result<SemverVal, ExecutionError> {
    let parsed = if normalize { semver::Version::parse(&normalized(text)) } else { semver::Version::parse(text) };
    parsed.map(SemverVal).map_err(|error| ExecutionError::function_error("semver", format!("{text:?}: {error}")))
}

/// The lenient form: no leading `v`, three numbers, no leading zeros (`v01.2` is `1.2.0`).
fn normalized(text: &str) -> String {
    let text = text.strip_prefix('v').unwrap_or(text);
    let end = text.find(['-', '+']).unwrap_or(text.len());
    let (numbers, rest) = text.split_at(end);
    let mut parts: Vec<&str> = numbers
        .split('.')
        .map(|part| match part.trim_start_matches('0') {
            "" if !part.is_empty() => "0",
            trimmed => trimmed,
        })
        .collect();
    while parts.len() < 3 {
        parts.push("0");
    }
    format!("{}{rest}", parts.join("."))
}

fn major(this: &SemverVal) -> Result<CelInt, ExecutionError> {
    number("major", this.0.major)
}

fn minor(this: &SemverVal) -> Result<CelInt, ExecutionError> {
    number("minor", this.0.minor)
}

fn patch(this: &SemverVal) -> Result<CelInt, ExecutionError> {
    number("patch", this.0.patch)
}

fn number(function: &str, number: u64) -> Result<CelInt, ExecutionError> {
    i64::try_from(number).map(CelInt::from).map_err(|error| ExecutionError::function_error(function, error))
}

fn semver_order(this: &SemverVal, other: &SemverVal) -> CelInt {
    as_int(this.order(other))
}

fn semver_greater(this: &SemverVal, other: &SemverVal) -> CelBool {
    this.order(other).is_gt().into()
}

fn semver_less(this: &SemverVal, other: &SemverVal) -> CelBool {
    this.order(other).is_lt().into()
}

/// `cel.bind(name, value, expression)`: a comprehension over nothing, whose accumulator is the bound name. So cel-go expands it.
fn bind(
    helper: &mut MacroExprHelper<'_>,
    target: &mut Option<IdedExpr>,
    args: &mut Vec<IdedExpr>,
) -> Result<Option<IdedExpr>, ParseError> {
    if !matches!(target.as_ref().map(|target| &target.expr), Some(Expr::Ident(name)) if name == "cel") {
        return Ok(None);
    }
    let (Some(result), Some(init), Some(name)) = (args.pop(), args.pop(), args.pop()) else {
        return Ok(None);
    };
    let Expr::Ident(variable) = name.expr else {
        return Err(helper.new_error(name.id, "cel.bind() needs a simple name as its first argument"));
    };
    let iter_range = helper.next_expr(Expr::List(ListExpr::new(vec![])));
    let loop_cond = helper.next_expr(Expr::Literal(LiteralValue::Boolean(false.into())));
    let loop_step = helper.next_expr(Expr::Ident(variable.clone()));
    Ok(Some(helper.next_expr(Expr::Comprehension(Box::new(ComprehensionExpr {
        iter_range,
        iter_var: "#unused".to_owned(),
        iter_var2: None,
        accu_var: variable,
        accu_init: init,
        loop_cond,
        loop_step,
        result,
    })))))
}
