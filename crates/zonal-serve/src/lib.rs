//! Front ends that serve a zoned stack to the kernel.
