//! Values by field number.
#![expect(unsafe_code, reason = "exported under C names")]

use std::ffi::c_int;

use super::device_calls;
use crate::abi::{Array, nvmlFieldValue_t};
use crate::code::{self, Code, SUCCESS};
use crate::engine::Target;

/// Types of a value: unsigned int and unsigned long long.
const UNSIGNED_INT: u32 = 1;
const UNSIGNED_LONG_LONG: u32 = 3;

device_calls! {
    /// Values of several fields, each with a return code of its own.
    fn nvmlDeviceGetFieldValues(target, count: c_int, fields: Array<nvmlFieldValue_t>) {
        target.whole()?;
        for field in fields.values(count)? {
            answer(target, field);
        }
        Ok(())
    }
}

fn answer(target: &Target, field: &mut nvmlFieldValue_t) {
    (field.timestamp, field.latencyUsec) = (0, 0);
    let value = match target.card.gpu.field_errors.get(&field.fieldId) {
        Some(error) => Err(Code(*error)),
        None => value_of(target, field.fieldId),
    };
    match value {
        Ok((kind, value)) => {
            (field.valueType, field.nvmlReturn) = (kind, SUCCESS);
            field.value = in_union(kind, value);
        }
        Err(error) => field.nvmlReturn = error.0,
    }
}

/// A narrow value fills the first four bytes of the union and leaves the others 0.
fn in_union(kind: u32, value: u64) -> [u8; 8] {
    match u32::try_from(value) {
        Ok(narrow) if kind == UNSIGNED_INT => {
            let mut bytes = [0; 8];
            bytes[..4].copy_from_slice(&narrow.to_ne_bytes());
            bytes
        }
        _ => value.to_ne_bytes(),
    }
}

fn value_of(target: &Target, field: u32) -> Result<(u32, u64), Code> {
    if let Some(value) = target.card.gpu.fields.get(&field) {
        let kind = if u32::try_from(*value).is_ok() { UNSIGNED_INT } else { UNSIGNED_LONG_LONG };
        return Ok((kind, *value));
    }
    let health = &target.card.health;
    let narrow = |value: Option<u32>| value.map(|value| (UNSIGNED_INT, u64::from(value)));
    let wide = |value: Option<u64>| value.map(|value| (UNSIGNED_LONG_LONG, value));
    let found = match canonical(field, target.machine.has_new_field_numbers()) {
        1 => narrow(health.ecc.map(|ecc| ecc.enabled.into())),
        2 => narrow(health.ecc.map(|ecc| ecc.pending.into())),
        3 => wide(health.ecc.map(|ecc| ecc.volatile_corrected)),
        4 => wide(health.ecc.map(|ecc| ecc.volatile_uncorrected)),
        5 => wide(health.ecc.map(|ecc| ecc.aggregate_corrected)),
        6 => wide(health.ecc.map(|ecc| ecc.aggregate_uncorrected)),
        31 => narrow(health.retired_pages_pending.map(u32::from)),
        82 => narrow(health.thermal.map(|thermal| thermal.memory)),
        83 => wide(health.energy_mj),
        91 => narrow(health.nvlinks.as_ref().and_then(|links| u32::try_from(links.len()).ok())),
        94 => narrow(health.pcie.map(|pcie| pcie.replays)),
        142 => narrow(health.remapped_rows.map(|rows| rows.correctable)),
        143 => narrow(health.remapped_rows.map(|rows| rows.uncorrectable)),
        144 => narrow(health.remapped_rows.map(|rows| rows.pending.into())),
        145 => narrow(health.remapped_rows.map(|rows| rows.failed.into())),
        230 => narrow(health.recovery_action),
        251 => wide(health.thermal.map(|thermal| thermal.software_slowdown_ns)),
        252 => wide(health.thermal.map(|thermal| thermal.hardware_slowdown_ns)),
        253 => wide(health.thermal.map(|thermal| thermal.power_brake_ns)),
        _ => None,
    };
    found.ok_or(code::NOT_SUPPORTED)
}

/// The number that a field had before driver 580.82; under the new numbering 251 to 268 are other fields, which no card here has.
fn canonical(field: u32, new_numbers: bool) -> u32 {
    match field {
        269..=273 if new_numbers => field - 18,
        251..=268 if new_numbers => 0,
        _ => field,
    }
}
