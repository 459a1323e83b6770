//! A GPU's place on the PCI bus: the one thing about it that NVML, sysfs and a device name agree on.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A PCI address. Ordered by domain, bus, device, function; written `0000:3b:00.0`, as sysfs does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PciAddress {
    /// PCI domain (segment). Four hex digits on most machines, up to eight on some.
    pub domain: u32,
    /// Bus number.
    pub bus: u8,
    /// Device (slot) number, 0 to 31.
    pub device: u8,
    /// Function number, 0 to 7. A GPU is function 0.
    pub function: u8,
}

/// Why a text is not a PCI address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a PCI address; expected DOMAIN:BUS:DEVICE.FUNCTION in hex, such as 0000:3b:00.0")]
pub struct ParsePciAddressError {
    /// What was given.
    pub text: String,
}

impl PciAddress {
    /// The spelling that NVML uses for bus ids: `00000000:3B:00.0`.
    #[must_use]
    pub fn nvml_bus_id(&self) -> String {
        format!("{:08X}:{:02X}:{:02X}.{:X}", self.domain, self.bus, self.device, self.function)
    }
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}:{:02x}:{:02x}.{:x}", self.domain, self.bus, self.device, self.function)
    }
}

impl FromStr for PciAddress {
    type Err = ParsePciAddressError;

    /// Accepts what sysfs and NVML print: a domain of one to eight hex digits, upper or lower case.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text).ok_or_else(|| ParsePciAddressError { text: text.to_owned() })
    }
}

fn parse(text: &str) -> Option<PciAddress> {
    let (domain, rest) = text.split_once(':')?;
    let (bus, rest) = rest.split_once(':')?;
    let (device, function) = rest.split_once('.')?;
    let address = PciAddress {
        domain: hex(domain, 8)?,
        bus: u8::try_from(hex(bus, 2)?).ok()?,
        device: u8::try_from(hex(device, 2)?).ok()?,
        function: u8::try_from(hex(function, 1)?).ok()?,
    };
    (address.device < 32 && address.function < 8).then_some(address)
}

/// `from_str_radix` alone would take a sign.
fn hex(digits: &str, most: usize) -> Option<u32> {
    let plain = !digits.is_empty() && digits.len() <= most && digits.bytes().all(|b| b.is_ascii_hexdigit());
    plain.then(|| u32::from_str_radix(digits, 16).ok()).flatten()
}

impl TryFrom<String> for PciAddress {
    type Error = ParsePciAddressError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<PciAddress> for String {
    fn from(address: PciAddress) -> Self {
        address.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::PciAddress;

    #[test]
    fn both_spellings_name_the_same_place() {
        let sysfs: PciAddress = "0000:3b:00.0".parse().unwrap();
        let nvml: PciAddress = "00000000:3B:00.0".parse().unwrap();
        assert_eq!(sysfs, nvml);
        assert_eq!(sysfs.to_string(), "0000:3b:00.0");
        assert_eq!(sysfs.nvml_bus_id(), "00000000:3B:00.0");
    }

    #[test]
    fn a_long_domain_survives_a_round_trip() {
        let text = "10de5:ff:1f.7";
        let address: PciAddress = text.parse().unwrap();
        assert_eq!(address.domain, 0x10_de5);
        assert_eq!(address.to_string(), text);
    }

    #[test]
    fn what_is_no_address_is_refused_with_the_text() {
        for bad in [
            "",
            "3b:00.0",
            "0000:3b:00",
            "0000:3b:20.0",
            "0000:3b:00.8",
            "+000:3b:00.0",
            "0000:1ff:00.0",
            "123456789:00:00.0",
            "0000:3b:00.0 ",
        ] {
            let error = bad.parse::<PciAddress>().unwrap_err();
            assert!(error.to_string().contains(bad), "{bad}");
        }
    }
}
