//! Device names. A name says where a device is, never at which index it was listed: `gpu-0000-3b-00-0`,
//! `gpu-0000-3b-00-0-mig-1g10gb-4-0`.

use crate::nvml::PciAddress;

/// A DNS label is at most this long (RFC 1123); device names are DNS labels.
const LABEL_LIMIT: usize = 63;

/// The name of the card at an address.
#[must_use]
pub fn gpu_name(pci: PciAddress) -> String {
    format!("gpu-{:04x}-{:02x}-{:02x}-{:x}", pci.domain, pci.bus, pci.device, pci.function)
}

/// The name of a partition: profile, first memory slice of its GPU instance, compute instance. The profile is written as a
/// label allows: `1g.10gb` as `1g10gb`, `1g.10gb+me` as `1g10gb-me`.
#[must_use]
pub fn mig_name(pci: PciAddress, profile: &str, start: u32, compute_instance: u32) -> String {
    let tail = format!("-{start}-{compute_instance}");
    let mut name = format!("{}-mig-{}", gpu_name(pci), label_part(profile));
    // Profiles are short; a strange one must not make the whole slice invalid.
    name.truncate(LABEL_LIMIT - tail.len());
    name + &tail
}

/// Lower-case letters and digits; dots vanish, any other run of characters becomes one dash.
fn label_part(text: &str) -> String {
    let mut label = String::new();
    for character in text.chars().filter(|&character| character != '.') {
        if character.is_ascii_alphanumeric() {
            label.push(character.to_ascii_lowercase());
        } else if !label.ends_with('-') {
            label.push('-');
        }
    }
    let label = label.trim_matches('-');
    if label.is_empty() { "unknown".to_owned() } else { label.to_owned() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{gpu_name, mig_name};

    #[test]
    fn names_follow_the_address() {
        assert_eq!(gpu_name("0000:3b:00.0".parse().unwrap()), "gpu-0000-3b-00-0");
        assert_eq!(gpu_name("10de5:ff:1f.7".parse().unwrap()), "gpu-10de5-ff-1f-7");
        let pci = "0000:3b:00.0".parse().unwrap();
        assert_eq!(mig_name(pci, "1g.10gb", 4, 0), "gpu-0000-3b-00-0-mig-1g10gb-4-0");
        assert_eq!(mig_name(pci, "1g.10gb+me", 4, 0), "gpu-0000-3b-00-0-mig-1g10gb-me-4-0");
        assert_eq!(mig_name(pci, "", 4, 0), "gpu-0000-3b-00-0-mig-unknown-4-0");
    }

    proptest! {
        #[test]
        fn every_partition_name_is_a_dns_label(profile in ".{0,80}", start: u32, compute: u32, bus: u8) {
            let pci = crate::nvml::PciAddress { domain: u32::MAX, bus, device: 31, function: 7 };
            let name = mig_name(pci, &profile, start, compute);
            prop_assert!(name.len() <= 63);
            prop_assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-'));
            prop_assert!(!name.ends_with('-'));
        }
    }
}
