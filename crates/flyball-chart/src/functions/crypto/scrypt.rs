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
    let (read, _) = lane.as_chunks::<4>();
    let mut words = [0; WORDS];
    words.iter_mut().zip(read).for_each(|(word, bytes)| *word = u32::from_le_bytes(*bytes));
    let mut mixed = [0; WORDS];
    let mut table = vec![[0; WORDS]; COST];
    for entry in &mut table {
        *entry = words;
        mix_blocks(&words, &mut mixed);
        words = mixed;
    }
    for _ in 0..COST {
        let at = usize::try_from(words[WORDS - 16]).unwrap_or(0) % COST;
        xor(&mut words, &table[at]);
        mix_blocks(&words, &mut mixed);
        words = mixed;
    }
    for (bytes, word) in lane.chunks_mut(4).zip(&words) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
}

fn mix_blocks(words: &[u32; WORDS], out: &mut [u32; WORDS]) {
    let (blocks, _) = words.as_chunks::<16>();
    let mut state = blocks[2 * BLOCKS - 1];
    for (at, block) in blocks.iter().enumerate() {
        salsa(&mut state, block);
        // Even blocks come first.
        let to = (at / 2 + (at % 2) * BLOCKS) * 16;
        out[to..to + 16].copy_from_slice(&state);
    }
}

fn xor<const N: usize>(words: &mut [u32; N], others: &[u32; N]) {
    let mut at = 0;
    while at < N {
        words[at] ^= others[at];
        at += 1;
    }
}

/// Combines the state with a block, and mixes it with Salsa20 with eight rounds (Salsa20/8).
///
/// Local variables make it several times faster without optimization, as in tests.
#[allow(clippy::many_single_char_names, reason = "the names of the specification are x0 to x15")]
fn salsa(state: &mut [u32; 16], block: &[u32; 16]) {
    xor(state, block);
    let [
        mut a,
        mut b,
        mut c,
        mut d,
        mut e,
        mut f,
        mut g,
        mut h,
        mut i,
        mut j,
        mut k,
        mut l,
        mut m,
        mut n,
        mut o,
        mut p,
    ] = *state;
    macro_rules! quarter {
        ($a:ident, $b:ident, $c:ident, $d:ident) => {
            $b ^= $a.wrapping_add($d).rotate_left(7);
            $c ^= $b.wrapping_add($a).rotate_left(9);
            $d ^= $c.wrapping_add($b).rotate_left(13);
            $a ^= $d.wrapping_add($c).rotate_left(18);
        };
    }
    let mut rounds = 0;
    while rounds < 8 {
        quarter!(a, e, i, m);
        quarter!(f, j, n, b);
        quarter!(k, o, c, g);
        quarter!(p, d, h, l);
        quarter!(a, b, c, d);
        quarter!(f, g, h, e);
        quarter!(k, l, i, j);
        quarter!(p, m, n, o);
        rounds += 2;
    }
    let mixed = [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p];
    let mut at = 0;
    while at < 16 {
        state[at] = state[at].wrapping_add(mixed[at]);
        at += 1;
    }
}
