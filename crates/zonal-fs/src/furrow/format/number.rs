//! Numbers of variable length: seven bits a byte, the low ones first, the high bit if more follow.

/// Appends a number.
pub(in crate::furrow) fn put_number(column: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        column.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    column.push(number.to_le_bytes()[0]);
}

/// Takes the number at the start of `rest`.
pub(in crate::furrow) fn take_number(rest: &mut &[u8]) -> Result<u64, &'static str> {
    let mut number = 0;
    for shift in (0..u64::BITS).step_by(7) {
        let byte = *rest.split_off_first().ok_or("the bytes end in a number")?;
        let bits = u64::from(byte & 0x7f);
        if bits << shift >> shift != bits {
            break;
        }
        number |= bits << shift;
        if byte & 0x80 == 0 {
            return Ok(number);
        }
    }
    Err("a number beyond 64 bits")
}
