//! The exported functions, by subject. Each is a few lines: what is common to all calls is in `engine`.

pub mod device;
pub mod events;
pub mod fields;
pub mod health;
pub mod mig;
pub mod system;

/// Every exported function.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    [system::NAMES, device::NAMES, mig::NAMES, health::NAMES, fields::NAMES, events::NAMES]
        .into_iter()
        .flatten()
        .copied()
}

/// Functions about one device: exported under their C name, called with the device that the handle stands for.
macro_rules! device_calls {
    ($($(#[$about:meta])* fn $name:ident($target:ident $(, $argument:ident: $kind:ty)* $(,)?) $body:block)+) => {
        /// Names of the functions of this module.
        pub(crate) const NAMES: &[&str] = &[$(stringify!($name)),+];

        $(
            $(#[$about])*
            #[unsafe(no_mangle)]
            pub extern "C" fn $name(device: $crate::abi::Handle $(, $argument: $kind)*) -> std::ffi::c_uint {
                $crate::engine::on_device(stringify!($name), device, |$target| $body)
            }
        )+
    };
}
pub(crate) use device_calls;
