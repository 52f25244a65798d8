        let metadata = ObjectMeta { name: Some({{variable}}.name_any()), ..ObjectMeta::default() };
        let message = vec![{{variable}}.spec.message.as_str(); {{variable}}.spec.times.unsigned_abs() as usize].join(" ");
        let data = Some([("message".into(), message)].into());
        cx.apply(&ConfigMap { metadata, data, ..ConfigMap::default() }).await
