        let message = vec![{{variable}}.spec.message.as_str(); {{variable}}.spec.times.unsigned_abs() as usize].join(" ");
        let annotations = Some([("{{group}}/message".into(), message)].into());
        let metadata = ObjectMeta { name: Some({{variable}}.name_any()), annotations, ..ObjectMeta::default() };
        cx.apply(&Namespace { metadata, ..Namespace::default() }).await
