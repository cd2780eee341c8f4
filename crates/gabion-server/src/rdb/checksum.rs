//! The checksum of files and payloads: CRC-64 of Jones, reflected, from 0.

/// Bytes that are summed up in one step.
const STEP: usize = 8;

/// What a byte does to the sum, by how many bytes of its step come behind it.
static TABLES: [[u64; 256]; STEP] = tables();

const fn tables() -> [[u64; 256]; STEP] {
    let mut tables = [[0; 256]; STEP];
    let mut byte = 0;
    while byte < 256 {
        let mut sum = byte as u64;
        let mut bit = 0;
        while bit < 8 {
            sum = match sum & 1 {
                1 => sum >> 1 ^ 0x95ac_9329_ac4b_c9b5,
                _ => sum >> 1,
            };
            bit += 1;
        }
        tables[0][byte] = sum;
        byte += 1;
    }
    let mut behind = 1;
    while behind < STEP {
        let mut byte = 0;
        while byte < 256 {
            let sum = tables[behind - 1][byte];
            let [low, ..] = sum.to_le_bytes();
            tables[behind][byte] = tables[0][low as usize] ^ sum >> 8;
            byte += 1;
        }
        behind += 1;
    }
    tables
}

/// The checksum of what has `sum`, and of bytes behind it.
pub(super) fn add(mut sum: u64, bytes: &[u8]) -> u64 {
    let (steps, rest) = bytes.as_chunks::<STEP>();
    for step in steps {
        let mixed = (sum ^ u64::from_le_bytes(*step)).to_le_bytes();
        let parts = mixed.iter().zip(TABLES.iter().rev());
        sum = parts.fold(0, |sum, (byte, table)| sum ^ table[usize::from(*byte)]);
    }
    for byte in rest {
        let [low, ..] = sum.to_le_bytes();
        sum = TABLES[0][usize::from(low ^ byte)] ^ sum >> 8;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_redis() {
        assert_eq!(add(0, b"123456789"), 0xe9c6_d914_c4b8_d9ca);
    }

    #[test]
    fn bytes_have_the_same_sum_in_whatever_pieces_they_come() {
        let bytes: Vec<u8> = (0..100).map(|number: u8| number.wrapping_mul(37)).collect();
        let one_by_one = bytes.iter().fold(0, |sum, byte| add(sum, &[*byte]));
        for cut in 0..=bytes.len() {
            let (first, rest) = bytes.split_at(cut);
            assert_eq!(add(add(0, first), rest), one_by_one, "{cut}");
        }
    }
}
