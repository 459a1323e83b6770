//! The health of one GPU at one moment, as NVML tells it: every value with "not supported" and "could not be read" kept apart.

use tokio::time::Instant;

use super::{Code, Reading};

/// Whether and as what the GPU at an address answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It answers, with the UUID that was expected.
    Answering,
    /// It is out of reach (`GPU_IS_LOST`).
    Lost,
    /// It refuses work until it is reset (`RESET_REQUIRED`).
    ResetRequired,
    /// NVML knows no GPU at this address (`NOT_FOUND`): taken out, or drained.
    Absent,
    /// Another card answers at this address. Its values are in the snapshot, but they are not those of the expected card.
    OtherCard {
        /// The UUID that answered.
        uuid: String,
    },
    /// It could not be opened or did not tell its UUID, for another reason.
    Unreadable(Code),
}

impl Presence {
    /// Whether values were read from some card at this address: all that it has, or, of one that needs a reset, what it still tells.
    #[must_use]
    pub fn has_values(&self) -> bool {
        matches!(self, Self::Answering | Self::ResetRequired | Self::OtherCard { .. })
    }
}

/// All health values that this program reads of a GPU. Where [`Presence::has_values`] is false they are all `Failed`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// When the reading ended.
    pub at: Instant,
    /// Who answered.
    pub presence: Presence,
    /// Field 230, the driver's own verdict (R565 and newer): 0 none, 1 GPU reset, 2 node reboot, 3 drain P2P,
    /// 4 drain and reset, 5 recover IMEX domain, 6 bus reset, 7 system reboot. Newer numbers may come: they are not "healthy".
    pub recovery_action: Reading<u32>,
    /// Row remapping (Ampere and newer), fields 142 to 145.
    pub remapped_rows: RemappedRows,
    /// Page retirement pending (before Ampere).
    pub retired_pages_pending: Reading<bool>,
    /// ECC mode and counters.
    pub ecc: Ecc,
    /// The SRAM error threshold is exceeded: the card is to be replaced (Ampere and newer, R535).
    pub sram_threshold_exceeded: Reading<bool>,
    /// A repair of a channel or TPC waits for a reset.
    pub repair_pending: Reading<RepairPending>,
    /// Temperatures and throttling.
    pub thermal: Thermal,
    /// The PCIe link.
    pub pcie: Pcie,
    /// State of each NVLink that exists, by link number; empty where the card has none.
    pub nvlinks: Vec<Reading<bool>>,
    /// NVLink fabric (NVSwitch systems).
    pub fabric: Reading<Fabric>,
    /// Energy since the driver was loaded, in millijoules. It only grows: a smaller number means that the driver was reloaded.
    pub energy_mj: Reading<u64>,
    /// Persistence mode.
    pub persistence: Reading<bool>,
    /// MIG mode, current and pending.
    pub mig_mode: Reading<super::MigMode>,
    /// `N` of `/dev/nvidiaN`.
    pub minor: Reading<u32>,
    /// Processes that compute on the card and that this process may see.
    pub processes: Reading<Vec<Process>>,
}

/// Row remapper state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemappedRows {
    /// Rows remapped for correctable errors.
    pub correctable: Reading<u32>,
    /// Rows remapped for uncorrectable errors.
    pub uncorrectable: Reading<u32>,
    /// A remap waits for a reset.
    pub pending: Reading<bool>,
    /// A remap failed: no spare row was left.
    pub failed: Reading<bool>,
}

/// ECC mode and totals. Volatile counters restart with the driver or a reset; aggregate ones stay for life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ecc {
    /// ECC is on now. Off hides all other memory signals.
    pub enabled: Reading<bool>,
    /// ECC is on after the next reset.
    pub pending: Reading<bool>,
    /// Corrected errors since driver load or reset.
    pub volatile_corrected: Reading<u64>,
    /// Uncorrected errors since driver load or reset.
    pub volatile_uncorrected: Reading<u64>,
    /// Corrected errors of the card's life.
    pub aggregate_corrected: Reading<u64>,
    /// Uncorrected errors of the card's life.
    pub aggregate_uncorrected: Reading<u64>,
}

/// What waits for a reset to be repaired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RepairPending {
    /// A memory channel.
    pub channel: bool,
    /// A TPC.
    pub tpc: bool,
}

/// Temperatures in degrees Celsius, and why and how long clocks were lowered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thermal {
    /// The GPU core.
    pub gpu_celsius: Reading<u32>,
    /// The memory (field 82).
    pub memory_celsius: Reading<u32>,
    /// Where hardware slows the clocks.
    pub slowdown_celsius: Reading<u32>,
    /// Where the card turns itself off.
    pub shutdown_celsius: Reading<u32>,
    /// Reasons for lowered clocks at this moment, the bits of `nvmlClocksEventReasons`.
    pub throttle_reasons: Reading<u64>,
    /// Time in software thermal slowdown since driver load, in nanoseconds.
    pub software_slowdown_ns: Reading<u64>,
    /// Time in hardware thermal slowdown since driver load, in nanoseconds.
    pub hardware_slowdown_ns: Reading<u64>,
    /// Time in power-brake slowdown since driver load, in nanoseconds.
    pub power_brake_ns: Reading<u64>,
}

impl Thermal {
    /// Bit of `throttle_reasons`: software slows clocks because of temperature.
    pub const SOFTWARE_THERMAL: u64 = 0x20;
    /// Bit of `throttle_reasons`: hardware slows clocks, by half or more.
    pub const HARDWARE: u64 = 0x8;
    /// Bit of `throttle_reasons`: hardware slows clocks because of temperature.
    pub const HARDWARE_THERMAL: u64 = 0x40;
    /// Bit of `throttle_reasons`: the power supply asked for it.
    pub const POWER_BRAKE: u64 = 0x80;
}

/// The PCIe link. The generation drops when a card idles: only the width is comparable at any time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pcie {
    /// Lanes in use.
    pub width: Reading<u32>,
    /// Lanes that card and slot could use.
    pub max_width: Reading<u32>,
    /// Link generation now.
    pub generation: Reading<u32>,
    /// Highest generation of card and slot.
    pub max_generation: Reading<u32>,
    /// Replays since driver load.
    pub replays: Reading<u32>,
}

/// NVLink fabric state (`nvmlGpuFabricInfoV_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fabric {
    /// 0 not supported, 1 not started, 2 in progress, 3 completed.
    pub state: u8,
    /// How registration ended; meaningful only in state 3. 0 is success.
    pub status: u32,
    /// Clique within the fabric.
    pub clique: u32,
    /// Two bits for each condition, 1 true and 2 false: degraded bandwidth at bit 0, route recovery at 2, route unhealthy at 4, access timeout at 6.
    pub health_mask: u32,
    /// 0 not told, 1 healthy, 2 unhealthy, 3 limited capacity; `None` where the library is too old to say.
    pub health_summary: Option<u8>,
}

/// A process that uses the card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    /// Process id as NVML sees it: of the host only with `hostPID`.
    pub pid: u32,
    /// Memory it uses, in bytes, if told.
    pub used_bytes: Option<u64>,
    /// GPU instance it runs on.
    pub gpu_instance: Option<u32>,
    /// Compute instance it runs on.
    pub compute_instance: Option<u32>,
}
