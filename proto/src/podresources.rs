//! Which devices kubelet gave to which container.

/// Package `v1`.
pub mod v1 {
    #![expect(clippy::too_many_lines, reason = "generated code")]
    include!("generated/podresources_v1.rs");
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::v1::DynamicResource;

    /// Field 1 was a class name until 1.31 and is a gap now: the claim's name is field 2.
    #[test]
    fn a_dynamic_resource_reads_from_the_bytes_that_kubelet_sends() {
        let read = DynamicResource::decode(b"\x12\x05train\x1a\x06team-a".as_slice()).unwrap();
        assert_eq!((read.claim_name.as_str(), read.claim_namespace.as_str()), ("train", "team-a"));
    }
}
