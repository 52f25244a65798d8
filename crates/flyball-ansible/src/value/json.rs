//! Values in the notation of JSON.

/// Creates a value in the notation of JSON, as the macro of `serde_json` does. Expressions are borrowed,
/// and converted by `From`.
macro_rules! json {
    (@list [$($items:expr,)*]) => { vec![$($items,)*] };
    (@list [$($items:expr),*]) => { vec![$($items),*] };
    (@list [$($items:expr,)*] null $($rest:tt)*) => {
        $crate::value::json!(@list [$($items,)* $crate::value::json!(null)] $($rest)*)
    };
    (@list [$($items:expr,)*] [$($list:tt)*] $($rest:tt)*) => {
        $crate::value::json!(@list [$($items,)* $crate::value::json!([$($list)*])] $($rest)*)
    };
    (@list [$($items:expr,)*] {$($map:tt)*} $($rest:tt)*) => {
        $crate::value::json!(@list [$($items,)* $crate::value::json!({$($map)*})] $($rest)*)
    };
    (@list [$($items:expr,)*] $next:expr, $($rest:tt)*) => {
        $crate::value::json!(@list [$($items,)* $crate::value::json!($next),] $($rest)*)
    };
    (@list [$($items:expr,)*] $last:expr) => {
        $crate::value::json!(@list [$($items,)* $crate::value::json!($last)])
    };
    (@list [$($items:expr),*] , $($rest:tt)*) => { $crate::value::json!(@list [$($items,)*] $($rest)*) };
    // The tokens of a key are collected up to the colon.
    (@map $fields:ident ()) => {};
    (@map $fields:ident [$($key:tt)+] ($value:expr) , $($rest:tt)*) => {
        let _ = $fields.insert(($($key)+).into(), $value);
        $crate::value::json!(@map $fields () $($rest)*);
    };
    (@map $fields:ident [$($key:tt)+] ($value:expr)) => {
        let _ = $fields.insert(($($key)+).into(), $value);
    };
    (@map $fields:ident ($($key:tt)+) : null $($rest:tt)*) => {
        $crate::value::json!(@map $fields [$($key)+] ($crate::value::json!(null)) $($rest)*);
    };
    (@map $fields:ident ($($key:tt)+) : [$($list:tt)*] $($rest:tt)*) => {
        $crate::value::json!(@map $fields [$($key)+] ($crate::value::json!([$($list)*])) $($rest)*);
    };
    (@map $fields:ident ($($key:tt)+) : {$($map:tt)*} $($rest:tt)*) => {
        $crate::value::json!(@map $fields [$($key)+] ($crate::value::json!({$($map)*})) $($rest)*);
    };
    (@map $fields:ident ($($key:tt)+) : $value:expr , $($rest:tt)*) => {
        $crate::value::json!(@map $fields [$($key)+] ($crate::value::json!($value)) , $($rest)*);
    };
    (@map $fields:ident ($($key:tt)+) : $value:expr) => {
        $crate::value::json!(@map $fields [$($key)+] ($crate::value::json!($value)));
    };
    (@map $fields:ident ($($key:tt)*) $next:tt $($rest:tt)*) => {
        $crate::value::json!(@map $fields ($($key)* $next) $($rest)*);
    };
    (null) => { $crate::value::Value::Null };
    ([]) => { $crate::value::Value::Array(Vec::new()) };
    ([$($items:tt)+]) => { $crate::value::Value::Array($crate::value::json!(@list [] $($items)+)) };
    ({}) => { $crate::value::Value::Object($crate::value::Map::new()) };
    ({$($fields:tt)+}) => {{
        let mut fields = $crate::value::Map::new();
        $crate::value::json!(@map fields () $($fields)+);
        $crate::value::Value::Object(fields)
    }};
    ($value:expr) => { $crate::value::Value::from(&$value) };
}

pub(crate) use json;
