//! The two architectures, and what everyone calls them.

/// An architecture an image is built for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Arch {
    Amd64,
    Arm64,
}

impl Arch {
    /// Both, in the order of every list.
    pub const ALL: [Arch; 2] = [Arch::Amd64, Arch::Arm64];

    /// Debian's name and the OCI's.
    pub fn name(self) -> &'static str {
        match self {
            Arch::Amd64 => "amd64",
            Arch::Arm64 => "arm64",
        }
    }

    /// The kernel's name, which Rust and QEMU use too.
    pub fn machine(self) -> &'static str {
        match self {
            Arch::Amd64 => "x86_64",
            Arch::Arm64 => "aarch64",
        }
    }

    /// The Rust target everything in an image is compiled for.
    pub fn target(self) -> String {
        format!("{}-unknown-linux-musl", self.machine())
    }

    /// Whether this machine runs it without emulation.
    pub fn is_native(self) -> bool {
        self.machine() == std::env::consts::ARCH
    }
}
