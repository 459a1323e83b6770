//! Health values of a GPU in the control file. A value that neither the file nor the profile gives is "not supported".

use serde::{Deserialize, Serialize};

/// Health values. Each that is given replaces the profile's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Health {
    /// Field 230.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recovery_action: Option<u32>,
    /// Fields 142 to 145, and `nvmlDeviceGetRemappedRows`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remapped_rows: Option<RemappedRows>,
    /// Banks by number of spare rows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub row_histogram: Option<RowHistogram>,
    /// Page retirement pending, for cards without row remapping.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retired_pages_pending: Option<bool>,
    /// ECC mode and totals.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ecc: Option<Ecc>,
    /// The flag of `nvmlDeviceGetSramEccErrorStatus`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sram_threshold_exceeded: Option<bool>,
    /// `nvmlDeviceGetRepairStatus`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repair: Option<Repair>,
    /// Temperatures and throttling.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thermal: Option<Thermal>,
    /// The PCIe link.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pcie: Option<Pcie>,
    /// State of each NVLink.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nvlinks: Option<Vec<bool>>,
    /// NVLink fabric.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fabric: Option<Fabric>,
    /// Millijoules since driver load.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub energy_mj: Option<u64>,
    /// Persistence mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persistence: Option<bool>,
    /// The InfoROM fails its check.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inforom_corrupt: Option<bool>,
    /// Compute processes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processes: Option<Vec<Process>>,
}

impl Health {
    /// Whether nothing is given.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// These values, and `base` where they are silent.
    #[must_use]
    pub fn over(&self, base: &Self) -> Self {
        Self {
            recovery_action: self.recovery_action.or(base.recovery_action),
            remapped_rows: self.remapped_rows.or(base.remapped_rows),
            row_histogram: self.row_histogram.or(base.row_histogram),
            retired_pages_pending: self.retired_pages_pending.or(base.retired_pages_pending),
            ecc: self.ecc.or(base.ecc),
            sram_threshold_exceeded: self.sram_threshold_exceeded.or(base.sram_threshold_exceeded),
            repair: self.repair.or(base.repair),
            thermal: self.thermal.or(base.thermal),
            pcie: self.pcie.or(base.pcie),
            nvlinks: self.nvlinks.clone().or_else(|| base.nvlinks.clone()),
            fabric: self.fabric.or(base.fabric),
            energy_mj: self.energy_mj.or(base.energy_mj),
            persistence: self.persistence.or(base.persistence),
            inforom_corrupt: self.inforom_corrupt.or(base.inforom_corrupt),
            processes: self.processes.clone().or_else(|| base.processes.clone()),
        }
    }
}

/// Row remapping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RemappedRows {
    /// For correctable errors.
    pub correctable: u32,
    /// For uncorrectable errors.
    pub uncorrectable: u32,
    /// One waits for a reset.
    pub pending: bool,
    /// One failed.
    pub failed: bool,
}

/// Number of banks by what is left of their spare rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RowHistogram {
    /// All left.
    pub max: u32,
    /// Many.
    pub high: u32,
    /// Some.
    pub partial: u32,
    /// Few.
    pub low: u32,
    /// None.
    pub none: u32,
}

/// ECC mode and totals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Ecc {
    /// On now.
    pub enabled: bool,
    /// On after the next reset.
    pub pending: bool,
    /// Corrected since driver load or reset.
    pub volatile_corrected: u64,
    /// Uncorrected since driver load or reset.
    pub volatile_uncorrected: u64,
    /// Corrected in the card's life.
    pub aggregate_corrected: u64,
    /// Uncorrected in the card's life.
    pub aggregate_uncorrected: u64,
}

impl Default for Ecc {
    fn default() -> Self {
        Self {
            enabled: true,
            pending: true,
            volatile_corrected: 0,
            volatile_uncorrected: 0,
            aggregate_corrected: 0,
            aggregate_uncorrected: 0,
        }
    }
}

/// Repairs that wait for a reset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Repair {
    /// Of a memory channel.
    pub channel_pending: bool,
    /// Of a TPC.
    pub tpc_pending: bool,
}

/// Temperatures in degrees Celsius and throttling.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Thermal {
    /// The core.
    pub gpu: u32,
    /// The memory.
    pub memory: u32,
    /// Where clocks are slowed.
    pub slowdown: u32,
    /// Where the card turns off.
    pub shutdown: u32,
    /// Bits of `nvmlClocksEventReasons`.
    pub throttle_reasons: u64,
    /// Nanoseconds in software thermal slowdown.
    pub software_slowdown_ns: u64,
    /// Nanoseconds in hardware thermal slowdown.
    pub hardware_slowdown_ns: u64,
    /// Nanoseconds in power-brake slowdown.
    pub power_brake_ns: u64,
}

impl Default for Thermal {
    fn default() -> Self {
        Self {
            gpu: 34,
            memory: 42,
            slowdown: 90,
            shutdown: 95,
            // 1: the GPU is idle.
            throttle_reasons: 1,
            software_slowdown_ns: 0,
            hardware_slowdown_ns: 0,
            power_brake_ns: 0,
        }
    }
}

/// The PCIe link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Pcie {
    /// Lanes in use.
    pub width: u32,
    /// Lanes possible.
    pub max_width: u32,
    /// Generation now.
    pub generation: u32,
    /// Highest generation.
    pub max_generation: u32,
    /// Replays.
    pub replays: u32,
}

impl Default for Pcie {
    fn default() -> Self {
        Self { width: 16, max_width: 16, generation: 5, max_generation: 5, replays: 0 }
    }
}

/// NVLink fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Fabric {
    /// 0 not supported, 1 not started, 2 in progress, 3 completed.
    pub state: u8,
    /// Return code of the registration.
    pub status: u32,
    /// Clique.
    pub clique: u32,
    /// Two bits for each condition.
    pub health_mask: u32,
    /// 0 not told, 1 healthy, 2 unhealthy, 3 limited.
    pub health_summary: u8,
}

impl Default for Fabric {
    fn default() -> Self {
        Self { state: 3, status: 0, clique: 0, health_mask: 0, health_summary: 1 }
    }
}

/// A compute process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Process {
    /// Process id.
    pub pid: u32,
    /// Memory in bytes.
    #[serde(default)]
    pub used_bytes: u64,
    /// GPU instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gi: Option<u32>,
    /// Compute instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ci: Option<u32>,
}
