//! Letters by class and case, as in Python.
//!
//! Python's classes are general categories, where the methods of `char` follow properties: `Ⓐ` is alphabetic, but no
//! letter. Both sides have a version of Unicode of their own, so they may differ for new letters.

use regex::Regex;
use std::sync::LazyLock;

/// The classes of whole strings, by the name of their method.
const CLASSES: [(&str, &str); 8] = [
    ("isalnum", r"[\p{L}\p{N}]+"),
    ("isalpha", r"\p{L}+"),
    ("isdecimal", r"\p{Nd}+"),
    ("isdigit", DIGITS),
    ("isidentifier", r"[_\p{XID_Start}]\p{XID_Continue}*"),
    ("isnumeric", NUMBERS),
    ("isprintable", r"[^\p{C}\p{Z}--\x20]*"),
    ("isspace", r"[\s\x1c-\x1f]+"),
];

/// Decimal digits, and those within other characters, such as superscripts.
const DIGITS: &str = r"(?x)[ \p{Nd} ²³¹
    \x{1369}-\x{1371} \x{19da} \x{2070} \x{2074}-\x{2079} \x{2080}-\x{2089} \x{2460}-\x{2468} \x{2474}-\x{247c}
    \x{2488}-\x{2490} \x{24ea} \x{24f5}-\x{24fd} \x{24ff} \x{2776}-\x{277e} \x{2780}-\x{2788} \x{278a}-\x{2792}
    \x{10a40}-\x{10a43} \x{10e60}-\x{10e68} \x{11052}-\x{1105a} \x{1f100}-\x{1f10a} ]+";

/// Numbers of all kinds, and ideographs with a numeric value.
const NUMBERS: &str = r"(?x)[ \p{N}
    㐅㒃㠪㭍一七万三九二五亖亿什仟仨伍佰億兆兩八六十千卄卅卌叁参參叄四壱壹幺廾廿弌弍弎弐拾捌柒漆玖百肆萬貮貳贰阡陆陌陸零
    \x{f96b} \x{f973} \x{f978} \x{f9b2} \x{f9d1} \x{f9d3} \x{f9fd} \x{20001} \x{20064} \x{200e2} \x{20121} \x{2092a}
    \x{20983} \x{2098c} \x{2099c} \x{20aea} \x{20afd} \x{20b19} \x{22390} \x{22998} \x{23b1b} \x{2626d} \x{2f890} ]+";

static PATTERNS: LazyLock<Vec<(&'static str, Regex)>> = LazyLock::new(|| {
    let pattern = |class: &str| Regex::new(&format!(r"\A(?:{class})\z")).expect("the classes are valid");
    CLASSES.map(|(method, class)| (method, pattern(class))).into()
});

/// Returns the result of a test of Python's strings; `None` if it is another method.
pub(super) fn is_of_class(text: &str, method: &str) -> Option<bool> {
    if let Some((_, pattern)) = PATTERNS.iter().find(|(name, _)| *name == method) {
        return Some(pattern.is_match(text));
    }
    let any = |is: fn(char) -> bool| text.chars().any(is);
    Some(match method {
        "isascii" => text.is_ascii(),
        "islower" => any(char::is_lowercase) && !any(char::is_uppercase) && !any(is_title_case),
        "isupper" => any(char::is_uppercase) && !any(char::is_lowercase) && !any(is_title_case),
        "istitle" => is_titled(text),
        _ => return None,
    })
}

/// Returns true if each word begins in upper case and continues in lower case.
fn is_titled(text: &str) -> bool {
    let (mut is_title, mut follows) = (false, false);
    for letter in text.chars() {
        let is_first = letter.is_uppercase() || is_title_case(letter);
        if is_first && follows || letter.is_lowercase() && !follows {
            return false;
        }
        follows = is_cased(letter);
        is_title |= follows;
    }
    is_title
}

/// Returns true if `repr` shows a string as it is, apart from quotes and backslashes.
pub(super) fn is_printable(text: &str) -> bool {
    is_of_class(text, "isprintable") == Some(true)
}

/// Returns true for spaces that separate words.
pub(super) fn is_space(letter: char) -> bool {
    letter.is_whitespace() || matches!(letter, '\u{1c}'..='\u{1f}')
}

fn is_cased(letter: char) -> bool {
    letter.is_lowercase() || letter.is_uppercase() || is_title_case(letter)
}

fn is_title_case(letter: char) -> bool {
    matches!(letter, 'ǅ' | 'ǈ' | 'ǋ' | 'ǲ' | '\u{1f88}'..='\u{1f8f}' | '\u{1f98}'..='\u{1f9f}')
        || matches!(letter, '\u{1fa8}'..='\u{1faf}' | '\u{1fbc}' | '\u{1fcc}' | '\u{1ffc}')
}

/// Returns each letter with its lower case, which depends on the letters around a sigma.
fn lowered(text: &str) -> impl Iterator<Item = (char, String)> {
    let lower: Vec<char> = text.to_lowercase().chars().collect();
    let mut at = 0;
    text.chars().map(move |letter| {
        let start = at;
        at += letter.to_lowercase().count();
        (letter, lower[start..at].iter().collect())
    })
}

pub(super) fn capitalized(text: &str) -> String {
    lowered(text).enumerate().map(|(at, (letter, lower))| if at == 0 { in_title_case(letter) } else { lower }).collect()
}

pub(super) fn titled(text: &str) -> String {
    let mut follows = false;
    let convert = |(letter, lower): (char, String)| {
        let converted = if follows { lower } else { in_title_case(letter) };
        follows = is_cased(letter);
        converted
    };
    lowered(text).map(convert).collect()
}

pub(super) fn swapped(text: &str) -> String {
    let swap = |(letter, lower): (char, String)| match letter {
        _ if letter.is_uppercase() => lower,
        _ if letter.is_lowercase() => letter.to_uppercase().collect(),
        _ => letter.into(),
    };
    lowered(text).map(swap).collect()
}

/// Returns a text for comparisons without regard to case.
pub(super) fn folded(text: &str) -> String {
    let fold = |letter: char| -> String {
        match letter {
            'ı' => letter.into(),
            'ẞ' => "ss".to_owned(),
            // The upper case of Cherokee is older than its lower case.
            '\u{13a0}'..='\u{13fd}' | '\u{ab70}'..='\u{abbf}' => letter.to_uppercase().collect(),
            // The upper case of some letters is a sequence.
            _ => letter.to_uppercase().flat_map(char::to_lowercase).collect(),
        }
    };
    text.chars().map(fold).collect()
}

/// Returns a letter in title case, which differs from upper case for digraphs and ligatures.
fn in_title_case(letter: char) -> String {
    let shifted = |by: u32| char::from_u32(u32::from(letter) + by).unwrap_or(letter).into();
    match letter {
        'Ǆ' | 'ǅ' | 'ǆ' => "ǅ".to_owned(),
        'Ǉ' | 'ǈ' | 'ǉ' => "ǈ".to_owned(),
        'Ǌ' | 'ǋ' | 'ǌ' => "ǋ".to_owned(),
        'Ǳ' | 'ǲ' | 'ǳ' => "ǲ".to_owned(),
        // Georgian words do not begin in upper case.
        '\u{10d0}'..='\u{10ff}' => letter.into(),
        // Greek vowels with an iota below.
        '\u{1f80}'..='\u{1f87}' | '\u{1f90}'..='\u{1f97}' | '\u{1fa0}'..='\u{1fa7}' => shifted(8),
        '\u{1fb3}' | '\u{1fc3}' | '\u{1ff3}' => shifted(9),
        letter if is_title_case(letter) => letter.into(),
        letter => {
            let mut upper = letter.to_uppercase();
            let first = upper.next().unwrap_or(letter);
            let rest = upper.flat_map(|rest| match rest {
                'Ι' => vec!['\u{345}'],
                rest if first.is_uppercase() => rest.to_lowercase().collect(),
                rest => vec![rest],
            });
            std::iter::once(first).chain(rest).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_those_of_python() {
        // With the results of Python 3.11.
        for (method, holds, fails) in [
            ("isalnum", &["a1", "²", "五", "ⅰ", "½"][..], &["", "a_", "Ⓐ", "a b"][..]),
            ("isalpha", &["é", "中", "ª"], &["", "ⅰ", "Ⓐ", "a\u{301}", "1"]),
            ("isdecimal", &["1", "٣", "𝟗"], &["", "²", "½", "五"]),
            ("isdigit", &["1", "²", "①", "⓪"], &["", "½", "五", "⑩"]),
            ("isidentifier", &["a1", "_", "é", "a\u{301}", "℘"], &["", "1a", "a-b", "a b", "a\n"]),
            ("isnumeric", &["½", "五", "Ⅷ", "\u{2f890}"], &["", "a", "中"]),
            ("isprintable", &["", "a b", "é"], &["\u{a0}", "\u{200b}", "\n", "\u{e000}", "\u{2028}"]),
            ("isspace", &[" \t", "\u{1c}", "\u{a0}", "\u{2003}"], &["", "\u{200b}", "a"]),
            ("islower", &["a1", "ª", "ʰ"], &["", "1", "aA", "aǅ", "中"]),
            ("isupper", &["A1", "Ⓐ", "Ⅷ"], &["", "1", "aA", "Aǅ", "中"]),
            ("istitle", &["Hello World", "ǅa", "1A"], &["", "1", "aA", "Aǅ", "ABc"]),
        ] {
            for (texts, expected) in [(holds, true), (fails, false)] {
                for text in texts {
                    assert_eq!(is_of_class(text, method), Some(expected), "{method} of {text:?}");
                }
            }
        }
        assert_eq!(is_of_class("a", "isblue"), None);
    }

    #[test]
    fn cases_are_those_of_python() {
        // With the results of `capitalize`, `title`, `swapcase` and `casefold` of Python 3.11.
        for (text, results) in [
            ("they're BILL's", ["They're bill's", "They'Re Bill'S", "THEY'RE bill'S", "they're bill's"]),
            ("中a Ⓐa ʰa", ["中a ⓐa ʰa", "中A Ⓐa ʰa", "中A ⓐA ʰA", "中a ⓐa ʰa"]),
            ("ΟΔΟΣ ΣΑΣ", ["Οδος σας", "Οδος Σας", "οδος σας", "οδοσ σασ"]),
            ("ǆ ß ﬁ ŉ ẞ", ["ǅ ß ﬁ ŉ ß", "ǅ Ss Fi ʼN ẞ", "Ǆ SS FI ʼN ß", "ǆ ss fi ʼn ss"]),
            ("ᾀ ᾲ ǅ", ["ᾈ ᾲ ǆ", "ᾈ Ὰ\u{345} ǅ", "ἈΙ ᾺΙ ǅ", "ἀι ὰι ǆ"]),
            ("აı Ꭰꭰ", ["აı ꭰꭰ", "აı Ꭰꭰ", "ᲐI ꭰᎠ", "აı ᎠᎠ"]),
        ] {
            assert_eq!([capitalized(text), titled(text), swapped(text), folded(text)], results, "{text}");
        }
    }
}
