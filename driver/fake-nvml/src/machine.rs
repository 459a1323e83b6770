//! The machine as the control file describes it at one moment, with every default filled in.

use std::sync::Arc;

use crate::control::{Control, Fault, Gpu, Health, Mig, MigInstance, MigProfile, Pci, Product, Profile};

/// The whole machine. It never changes: another file makes another one.
#[derive(Debug, Default)]
pub(crate) struct Machine {
    pub(crate) control: Control,
    pub(crate) cards: Vec<Arc<Card>>,
}

/// One GPU.
#[derive(Debug)]
pub(crate) struct Card {
    pub(crate) gpu: Gpu,
    pub(crate) uuid: String,
    pub(crate) minor: u32,
    pub(crate) health: Health,
}

impl Machine {
    pub(crate) fn new(control: Control) -> Self {
        let cards = (0..).zip(&control.gpus).map(|(place, gpu)| Arc::new(Card::new(gpu, place))).collect();
        Self { control, cards }
    }

    /// The GPUs that NVML lists, in its order: lost ones too, absent ones not.
    pub(crate) fn listed(&self) -> impl Iterator<Item = &Arc<Card>> {
        self.cards.iter().filter(|card| !card.gpu.absent)
    }

    pub(crate) fn at(&self, pci: Pci) -> Option<&Arc<Card>> {
        self.listed().find(|card| card.gpu.pci == pci)
    }

    pub(crate) fn index_of(&self, pci: Pci) -> Option<u32> {
        (0..).zip(self.listed()).find(|(_, card)| card.gpu.pci == pci).map(|(index, _)| index)
    }

    /// From driver 580.82 on, NVML numbers some fields anew.
    pub(crate) fn has_new_field_numbers(&self) -> bool {
        let mut parts = self.control.driver_version.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
        (parts.next().unwrap_or(0), parts.next().unwrap_or(0)) >= (580, 82)
    }
}

impl Card {
    fn new(gpu: &Gpu, place: u32) -> Self {
        Self {
            gpu: gpu.clone(),
            uuid: gpu.effective_uuid(),
            minor: gpu.minor.unwrap_or(place),
            health: gpu.health.over(&gpu.profile.healthy()),
        }
    }

    pub(crate) fn product(&self) -> &'static Product {
        self.gpu.profile.product()
    }

    pub(crate) fn supported_events(&self) -> u64 {
        self.gpu.supported_events.unwrap_or(self.product().supported_events)
    }

    /// The partitions, if MIG is on.
    pub(crate) fn partitions(&self) -> &[MigInstance] {
        match &self.gpu.mig {
            Some(Mig { mode: true, instances, .. }) => instances,
            _ => &[],
        }
    }

    pub(crate) fn partition_uuid(&self, instance: &MigInstance) -> String {
        let seed = u64::from(instance.gi) << 32 | u64::from(instance.ci) | 1 << 63;
        let seed = self.uuid.bytes().fold(seed, |seed, byte| seed.rotate_left(5) ^ u64::from(byte));
        instance
            .uuid
            .clone()
            .unwrap_or_else(|| crate::control::derived_uuid("MIG", seed, self.gpu.profile, self.gpu.pci))
    }

    pub(crate) fn fault(&self, function: &str) -> Option<&Fault> {
        self.gpu.faults.iter().find(|fault| fault.is_about(function))
    }
}

/// What a partition has of its card.
pub(crate) struct Share {
    pub(crate) profile: &'static MigProfile,
    /// Slices of the compute instance: less than the GPU instance's for `1c.3g.40gb`.
    pub(crate) compute_slices: u32,
    pub(crate) multiprocessors: u32,
}

impl Share {
    pub(crate) fn of(profile: Profile, instance: &MigInstance) -> Option<Self> {
        let (compute, name) = match instance.profile.split_once("c.") {
            Some((slices, name)) => (slices.parse().ok(), name),
            None => (None, instance.profile.as_str()),
        };
        let product = profile.product();
        let profile = product.mig_profiles.iter().find(|known| known.name == name)?;
        let compute_slices = compute.unwrap_or(profile.slices);
        Some(Self { profile, compute_slices, multiprocessors: product.multiprocessors / 8 * compute_slices })
    }
}
