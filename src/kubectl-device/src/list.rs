//! What `kubectl device list` says of each device: health, taints of drivers and rules, who uses it.

use std::collections::BTreeSet;

use serde::Serialize;
use taints::fleet::{Fleet, Listed, RuleOn, Standing};
use taints::object::{Attribute, Device, DeviceId, Rule, Slice};
use taints::{Effect, Taint};

use crate::table::columns;
use crate::world::World;

/// The key that a driver of ours gives a device that it cannot look after; its other None taints inform only.
const UNMONITORED: &str = "gpu.devicetaint.dev/unmonitored";
/// What an empty cell says.
const NOTHING: &str = "-";

/// One device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Row {
    node: String,
    device: String,
    driver: String,
    pool: String,
    uuid: Option<String>,
    serial: Option<String>,
    product: Option<String>,
    health: Health,
    taints: Vec<OnDevice>,
    used_by: Vec<User>,
}

/// What the driver says of a device, by the taints that it put into its slice (terms of KEP-4680).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum Health {
    /// It says nothing bad.
    Healthy,
    /// It keeps work away.
    Unhealthy,
    /// It cannot look.
    Unknown,
}

impl Health {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Healthy => "Healthy",
            Self::Unhealthy => "Unhealthy",
            Self::Unknown => "Unknown",
        }
    }
}

/// A taint, and the object that it stands in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct OnDevice {
    taint: String,
    since: Option<jiff::Timestamp>,
    from: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<jiff::Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    not_applied: Option<&'static str>,
}

/// A pod that holds the device by a claim, or a claim that nobody uses now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct User {
    claim: String,
    pod: Option<String>,
    admin_access: bool,
}

/// A line for each published device of these nodes, or of all, in the order of node, driver and device.
pub(crate) fn rows(world: &World, nodes: &[String]) -> Vec<Row> {
    let mut rows: Vec<Row> = world.devices().map(|listed| row(&world.fleet, listed)).collect();
    rows.retain(|row| nodes.is_empty() || nodes.contains(&row.node));
    rows.sort_by(|a, b| (&a.node, &a.driver, &a.device).cmp(&(&b.node, &b.driver, &b.device)));
    rows
}

/// The nodes that were asked for and have no device; with what to ask for instead, in words. Absent when all have some.
pub(crate) fn missing(world: &World, rows: &[Row], nodes: &[String]) -> Option<String> {
    let none: Vec<&String> = nodes.iter().filter(|node| !rows.iter().any(|row| row.node == **node)).collect();
    if none.is_empty() {
        return None;
    }
    let with: BTreeSet<String> = self::rows(world, &[]).into_iter().map(|row| row.node).collect();
    let with: Vec<String> = with.into_iter().collect();
    let with = if with.is_empty() {
        "no node has devices".to_owned()
    } else {
        format!("nodes with devices: {}", with.join(", "))
    };
    let words = |node: &String| match world.fleet.node(node) {
        Some(_) => format!("node {node} publishes no device"),
        None => format!("no node {node}"),
    };
    let problems: Vec<String> = none.into_iter().map(words).collect();
    Some(format!("{}; {with}", problems.join(", ")))
}

fn row(fleet: &Fleet, listed: Listed<'_>) -> Row {
    let id = listed.id();
    let (slice, device) = (listed.slice, listed.device);
    Row {
        node: slice.node_name.clone().unwrap_or_else(|| slice.pool.clone()),
        device: device.name.clone(),
        driver: slice.driver.clone(),
        pool: slice.pool.clone(),
        uuid: device.identity.uuid.clone(),
        serial: device.identity.serial.clone(),
        product: product(device),
        health: health(device.taints.iter().filter(|taint| fleet.mark_of(&id, taint).is_none())),
        taints: taints(fleet, listed, &id),
        used_by: users(fleet, &id),
    }
}

fn product(device: &Device) -> Option<String> {
    let named = device.attributes.iter().find(|(name, _)| name.rsplit('/').next() == Some("productName"));
    match named {
        Some((_, Attribute::String(product))) => Some(product.clone()),
        _ => None,
    }
}

/// From what the driver found by itself.
fn health<'a>(own: impl Iterator<Item = &'a Taint>) -> Health {
    let mut unmonitored = false;
    for taint in own {
        if taint.effect.blocks_new_work() {
            return Health::Unhealthy;
        }
        unmonitored |= taint.key == UNMONITORED && taint.effect == Effect::None;
    }
    if unmonitored { Health::Unknown } else { Health::Healthy }
}

fn taints(fleet: &Fleet, listed: Listed<'_>, id: &DeviceId) -> Vec<OnDevice> {
    let own = listed.device.taints.iter().map(|taint| of_slice(listed.slice, taint, fleet.mark_of(id, taint)));
    let rules = fleet.rules_on(id).into_iter().map(|on| {
        let not_applied = not_applied(on.standing);
        OnDevice { not_applied, ..of_mark("DeviceTaintRule", on.rule) }
    });
    let shown = |mark: &Taint| listed.device.taints.iter().any(|own| own.same_as(mark) && own.value == mark.value);
    let is_shown =
        |on: &RuleOn<'_>| listed.slice.follows_marks && on.standing == Standing::Applies && shown(&on.rule.taint);
    let waiting = fleet.marks_on(id).into_iter().filter(|on| !is_shown(on));
    let waiting = waiting.map(|on| {
        let not_applied = not_applied(on.standing).or(Some(unpublished(listed.slice)));
        OnDevice { not_applied, ..of_mark("DeviceMark", on.rule) }
    });
    own.chain(rules).chain(waiting).collect()
}

/// A taint of a slice: of the driver, or of a person whose mark the driver follows.
fn of_slice(slice: &Slice, taint: &Taint, mark: Option<&Rule>) -> OnDevice {
    let from = format!("ResourceSlice {}", slice.name);
    let (taint, since) = (taint.to_string(), taint.time_added);
    match mark {
        Some(mark) => {
            let from = format!("DeviceMark {} in {from}", mark.name);
            OnDevice { taint, since, from, ..of_mark("DeviceMark", mark) }
        }
        None => OnDevice { taint, since, from, by: None, reason: None, expires_at: None, not_applied: None },
    }
}

fn of_mark(kind: &str, rule: &Rule) -> OnDevice {
    OnDevice {
        taint: rule.taint.to_string(),
        since: rule.taint.time_added,
        from: format!("{kind} {}", rule.name),
        by: rule.by.clone(),
        reason: rule.reason.clone(),
        // That of others is not kept.
        expires_at: rule.expires_at.filter(|_| rule.managed),
        not_applied: None,
    }
}

fn not_applied(standing: Standing) -> Option<&'static str> {
    match standing {
        Standing::Applies => None,
        Standing::TargetChanged => Some("the name means another card now"),
        Standing::Unknown => Some("which card the name means is not known"),
    }
}

fn unpublished(slice: &Slice) -> &'static str {
    if slice.follows_marks { "its agent has not published it" } else { "its driver does not follow marks" }
}

fn users(fleet: &Fleet, id: &DeviceId) -> Vec<User> {
    let mut users = Vec::new();
    for claim in fleet.users(id) {
        let results = claim.results.iter().flatten().filter(|result| result.id == *id);
        let admin_access = results.clone().count() > 0 && results.into_iter().all(|result| result.admin_access);
        let holders = fleet.holders(&claim.key);
        let user = |pod: Option<String>| User { claim: claim.key.to_string(), pod, admin_access };
        if holders.is_empty() {
            users.push(user(None));
        }
        users.extend(holders.into_iter().map(|pod| user(Some(pod.key.to_string()))));
    }
    users
}

/// The rows for people.
pub(crate) fn table(rows: &[Row], wide: bool) -> String {
    if rows.is_empty() {
        return "no devices are published; why, a node's agent says in its /readyz and in events of the Node (kubectl describe node)\n".to_owned();
    }
    let mut headings = vec!["NODE", "DEVICE", "UUID", "PRODUCT", "HEALTH", "TAINTS", "USED BY"];
    if wide {
        headings.extend(["DRIVER", "SERIAL", "SINCE", "WHO AND WHY"]);
    }
    let cells: Vec<Vec<String>> = rows.iter().map(|row| cells(row, wide)).collect();
    columns(&headings, &cells)
}

fn cells(row: &Row, wide: bool) -> Vec<String> {
    let text = |value: &Option<String>| value.clone().unwrap_or_else(|| NOTHING.to_owned());
    let mut cells = vec![
        row.node.clone(),
        row.device.clone(),
        text(&row.uuid),
        text(&row.product),
        row.health.as_str().to_owned(),
        joined(row.taints.iter().map(taint_cell)),
        joined(row.used_by.iter().map(user_cell)),
    ];
    if wide {
        let since = row.taints.iter().filter_map(|taint| taint.since).map(|time| time.to_string());
        let who = row.taints.iter().filter_map(who_cell);
        cells.extend([row.driver.clone(), text(&row.serial), joined(since), joined(who)]);
    }
    cells
}

fn taint_cell(on: &OnDevice) -> String {
    match on.not_applied {
        None => on.taint.clone(),
        Some(why) => format!("{} (not applied: {why})", on.taint),
    }
}

/// A person's name and words, and until when, for a taint that a person put there.
fn who_cell(on: &OnDevice) -> Option<String> {
    let reason = on.reason.as_ref().map(|reason| format!("\"{}\"", reason.escape_debug()));
    let who = match (&on.by, reason) {
        (Some(by), Some(reason)) => Some(format!("{by}: {reason}")),
        (Some(by), None) => Some(by.clone()),
        (None, reason) => reason,
    };
    match (who, on.expires_at) {
        (Some(who), Some(end)) => Some(format!("{who} until {end}")),
        (None, Some(end)) => Some(format!("until {end}")),
        (who, None) => who,
    }
}

fn user_cell(user: &User) -> String {
    let who = user.pod.clone().unwrap_or_else(|| format!("claim {}", user.claim));
    if user.admin_access { format!("{who} (admin)") } else { who }
}

fn joined(texts: impl Iterator<Item = String>) -> String {
    let all: Vec<String> = texts.collect();
    if all.is_empty() { NOTHING.to_owned() } else { all.join(",") }
}

/// The rows as `NODE/DEVICE`, as `taint` and `untaint` take them.
pub(crate) fn names(rows: &[Row]) -> String {
    rows.iter().map(|row| format!("{}/{}\n", row.node, row.device)).collect()
}

#[cfg(test)]
mod tests;
