//! The memory that a command to a drive fills or takes.

/// The data of a command.
pub(crate) enum Data<'a> {
    /// None.
    Nothing,
    /// From the drive, into this memory.
    Fill(&'a mut [u8]),
    /// To the drive, from this memory.
    Take(&'a [u8]),
}

impl Data<'_> {
    /// How many bytes.
    pub(crate) fn len(&self) -> usize {
        match self {
            Data::Nothing => 0,
            Data::Fill(bytes) => bytes.len(),
            Data::Take(bytes) => bytes.len(),
        }
    }
}
