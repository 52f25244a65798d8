//! scrypt with the fixed parameters of `derivePassword`. See <https://www.rfc-editor.org/rfc/rfc7914>.

use ring::pbkdf2;
use std::num::NonZeroU32;

const COST: usize = 32_768;
const BLOCKS: usize = 8;
const LANES: usize = 2;
/// Words per lane.
const WORDS: usize = BLOCKS * 32;

/// Derives a key of 64 bytes.
pub(super) fn key(password: &[u8], salt: &[u8]) -> [u8; 64] {
    let mut lanes = vec![0; LANES * WORDS * 4];
    let one = NonZeroU32::MIN;
    pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, one, salt, password, &mut lanes);
    for lane in lanes.chunks_mut(WORDS * 4) {
        mix(lane);
    }
    let mut key = [0; 64];
    pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, one, &lanes, password, &mut key);
    key
}

fn mix(lane: &mut [u8]) {
    let mut words: Vec<u32> = lane.chunks(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
    let mut table = Vec::with_capacity(COST * WORDS);
    for _ in 0..COST {
        table.extend_from_slice(&words);
        words = mix_blocks(&words);
    }
    for _ in 0..COST {
        let at = usize::try_from(words[WORDS - 16]).unwrap_or(0) % COST * WORDS;
        for (word, other) in words.iter_mut().zip(&table[at..at + WORDS]) {
            *word ^= other;
        }
        words = mix_blocks(&words);
    }
    for (bytes, word) in lane.chunks_mut(4).zip(&words) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
}

fn mix_blocks(words: &[u32]) -> Vec<u32> {
    let mut out = vec![0; WORDS];
    let mut state = [0; 16];
    state.copy_from_slice(&words[WORDS - 16..]);
    for (at, block) in words.chunks(16).enumerate() {
        for (word, other) in state.iter_mut().zip(block) {
            *word ^= other;
        }
        salsa(&mut state);
        // Even blocks come first.
        let to = (at / 2 + (at % 2) * BLOCKS) * 16;
        out[to..to + 16].copy_from_slice(&state);
    }
    out
}

/// Salsa20 with eight rounds (Salsa20/8).
fn salsa(state: &mut [u32; 16]) {
    const QUARTERS: [[usize; 4]; 8] = [
        [0, 4, 8, 12],
        [5, 9, 13, 1],
        [10, 14, 2, 6],
        [15, 3, 7, 11],
        [0, 1, 2, 3],
        [5, 6, 7, 4],
        [10, 11, 8, 9],
        [15, 12, 13, 14],
    ];
    let before = *state;
    for _ in 0..4 {
        for [a, b, c, d] in QUARTERS {
            state[b] ^= state[a].wrapping_add(state[d]).rotate_left(7);
            state[c] ^= state[b].wrapping_add(state[a]).rotate_left(9);
            state[d] ^= state[c].wrapping_add(state[b]).rotate_left(13);
            state[a] ^= state[d].wrapping_add(state[c]).rotate_left(18);
        }
    }
    for (word, old) in state.iter_mut().zip(before) {
        *word = word.wrapping_add(old);
    }
}
