//! Which card has another owner. Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::offer::{Offer, Owner, Which};
use crate::nvml::PciAddress;

/// The cards that somebody else offers too, and who: they are not published, and nothing new is prepared on them.
pub type Contested = BTreeMap<PciAddress, Owner>;

/// The flag with which the agent takes no notice of other owners.
pub const FLAG: &str = "--ignore-other-owners";

/// The flag that says how long another owner must be gone.
pub const GRACE: &str = "--other-owner-grace";

/// Who else offers the card at this address, with these UUIDs of it and of its partitions. Of several the first: device plugins, then drivers by name.
#[must_use]
pub fn owner_of<'a>(offers: &'a BTreeSet<Offer>, pci: PciAddress, uuids: &[&str]) -> Option<&'a Owner> {
    let names_it = |offer: &&Offer| match &offer.which {
        Which::Any => true,
        Which::At(address) => *address == pci,
        Which::Is(uuid) => uuids.iter().any(|ours| ours.eq_ignore_ascii_case(uuid)),
    };
    offers.iter().find(names_it).map(|offer| &offer.owner)
}

/// What a person should know of it, with what to do; `None` while no card is contested. `all` is how many cards the node has.
#[must_use]
pub fn told(contested: &Contested, all: usize) -> Option<String> {
    let mut by_owner: BTreeMap<&Owner, Vec<String>> = BTreeMap::new();
    for (pci, owner) in contested {
        by_owner.entry(owner).or_default().push(pci.to_string());
    }
    let parts = by_owner.iter().map(|(owner, cards)| match cards.len() == all {
        true => format!("every GPU is offered by {owner} too"),
        false => format!("{} of {all} GPUs ({}) offered by {owner} too", cards.len(), cards.join(", ")),
    });
    let parts = parts.collect::<Vec<_>>();
    (!parts.is_empty()).then(|| {
        format!(
            "{}. A GPU has one owner: such GPUs are not published, and no new claim is prepared on them; what is prepared goes on. Take the other \
             owner off this node (the GPUs come back when it has been gone for the time of {GRACE}), or start the agent with {FLAG}",
            parts.join("; ")
        )
    })
}

/// The same for an event: whatever cards it is about, an owner is one event.
#[must_use]
pub fn announced(owner: &Owner) -> String {
    format!(
        "GPUs of this node are offered by {owner} too. A GPU has one owner: they are not published, and no new claim is prepared on them; what is prepared \
         goes on. Take the other owner off this node, or start gpu-driver with {FLAG}. Its /readyz says which GPUs"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pci(text: &str) -> PciAddress {
        text.parse().unwrap()
    }

    fn driver(name: &str, which: Which) -> Offer {
        Offer { owner: Owner::Driver { name: name.to_owned() }, which }
    }

    fn plugin() -> Offer {
        Offer { owner: Owner::Plugin { resource: "nvidia.com/gpu".to_owned() }, which: Which::Any }
    }

    fn owner(offers: &[Offer], address: &str, uuids: &[&str]) -> Option<String> {
        let offers = offers.iter().cloned().collect();
        owner_of(&offers, pci(address), uuids).map(ToString::to_string)
    }

    #[test]
    fn a_slice_contests_the_card_that_it_names_and_no_other() {
        let by_address = [driver("b", Which::At(pci("0000:3b:00.0")))];
        assert_eq!(owner(&by_address, "0000:3b:00.0", &["GPU-1"]).as_deref(), Some("driver b"));
        assert_eq!(owner(&by_address, "0000:4e:00.0", &["GPU-2"]), None);
        let by_uuid = [driver("b", Which::Is("mig-7".to_owned()))];
        assert_eq!(owner(&by_uuid, "0000:3b:00.0", &["GPU-1", "MIG-7"]).as_deref(), Some("driver b"));
        assert_eq!(
            owner(&by_uuid, "0000:3b:00.0", &["GPU-1"]),
            None,
            "a card that never told its UUID is not contested by one"
        );
        assert_eq!(owner(&[], "0000:3b:00.0", &["GPU-1"]), None);
    }

    #[test]
    fn a_device_plugin_contests_every_card() {
        let offers = [driver("b", Which::At(pci("0000:3b:00.0"))), plugin()];
        for address in ["0000:3b:00.0", "0001:00:00.0"] {
            assert!(owner(&offers, address, &[]).unwrap().contains("nvidia.com/gpu is allocatable"), "{address}");
        }
    }

    #[test]
    fn what_is_told_names_owner_cards_and_flag() {
        assert_eq!(told(&Contested::new(), 8), None);
        let some = Contested::from([(pci("0000:3b:00.0"), driver("b", Which::Any).owner)]);
        let text = told(&some, 8).unwrap();
        assert!(
            text.starts_with("1 of 8 GPUs (0000:3b:00.0) offered by driver b too")
                && text.contains(FLAG)
                && text.contains(GRACE),
            "{text}"
        );
        let text = announced(&some.values().next().unwrap().clone());
        assert!(text.len() < 1024 && text.contains("driver b") && text.contains(FLAG), "{text}");
        let text = told(&some, 1).unwrap();
        assert!(text.starts_with("every GPU is offered by driver b too"), "{text}");
    }
}
