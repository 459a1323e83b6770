//! Devices into slices.

use super::model::{Device, Pool};

/// Splits the pool into slices of at most `max` devices, in order, with all devices of a card in one slice: a card's taint is
/// then an update of one slice, in place. Never empty: a pool without devices is one empty slice, which tells that the driver
/// is there and has none. A card of more than `max` devices, which no hardware has, is split.
#[must_use]
pub fn pack(pool: &Pool, max: usize) -> Vec<Vec<Device>> {
    let max = max.max(1);
    let mut slices = vec![Vec::new()];
    for card in &pool.cards {
        for part in card.devices.chunks(max) {
            add(&mut slices, part, max);
        }
    }
    slices
}

fn add(slices: &mut Vec<Vec<Device>>, part: &[Device], max: usize) {
    match slices.last_mut() {
        Some(last) if last.len() + part.len() <= max => last.extend_from_slice(part),
        _ => slices.push(part.to_vec()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::model::{Card, Device, Pool};
    use super::pack;

    fn pool(cards: &[usize]) -> Pool {
        let card = |(index, devices): (usize, &usize)| Card {
            devices: (0..*devices)
                .map(|device| Device { name: format!("gpu-{index}-{device}"), ..Device::default() })
                .collect(),
        };
        Pool { cards: cards.iter().enumerate().map(card).collect() }
    }

    fn sizes(cards: &[usize], max: usize) -> Vec<usize> {
        pack(&pool(cards), max).iter().map(Vec::len).collect()
    }

    #[test]
    fn a_pool_without_devices_is_one_empty_slice() {
        assert_eq!(sizes(&[], 64), [0]);
    }

    /// Field report F27: 8 cards of 10 devices are 80; one slice of them breaks at the first taint.
    #[test]
    fn eight_cards_of_ten_devices_are_split_between_cards() {
        assert_eq!(sizes(&[10; 8], 64), [60, 20]);
        let slices = pack(&pool(&[10; 8]), 64);
        for card in 0..8 {
            let prefix = format!("gpu-{card}-");
            let holding = slices.iter().filter(|slice| slice.iter().any(|device| device.name.starts_with(&prefix)));
            assert_eq!(holding.count(), 1, "card {card}");
        }
    }

    #[test]
    fn a_slice_is_filled_to_its_limit_and_not_above() {
        assert_eq!(sizes(&[32, 32, 1], 64), [64, 1]);
        assert_eq!(sizes(&[65, 1], 64), [64, 2]);
    }
}
