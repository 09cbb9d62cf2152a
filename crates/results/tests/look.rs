use std::path::Path;
mod common;
#[test]
#[ignore]
fn look() {
    let all: Vec<_> = [common::text_experiment(), common::copy_experiment(3)].concat();
    let spec = results::ReportSpec { baseline: Some("rope".into()), ..Default::default() };
    let r = results::report(&all, &[], &spec).unwrap();
    r.write(Path::new("/tmp/look/a")).unwrap();
    println!("{}", r.summary);
    let r = results::report(&common::base_experiment(), &[], &Default::default()).unwrap();
    r.write(Path::new("/tmp/look/b")).unwrap();
    println!("{}", r.summary);
    let h = results::plot::Heatmap {
        title: "attention, layer 0 head 1".into(),
        x_label: "key position".into(),
        y_label: "query position".into(),
        value_label: "weight".into(),
        values: (0..96).map(|q| (0..96).map(|k| if k > q { f64::NAN } else { (-((q - k) as f64) / 12.0).exp() }).collect()).collect(),
        reference: Some((64, "train length".into())),
        ..Default::default()
    };
    std::fs::write("/tmp/look/heat.png", h.to_png().unwrap()).unwrap();
    let mut p = results::plot::LinePlot {
        title: "many".into(),
        y_label: "loss".into(),
        x_label: "x".into(),
        reference_x: Some((64.0, "train length".into())),
        log_x: true,
        mark_points: true,
        x_ticks: vec![16., 32., 64., 96., 128., 192., 256., 384., 512., 1024., 2048., 4096.],
        ..Default::default()
    };
    for i in 0..20 {
        p.series.push(results::plot::Series {
            name: format!("method number {i} with a long name, 100000 + yarn{}", "x".repeat(i)),
            points: p.x_ticks.iter().map(|x| (*x, i as f64 + x.log2())).collect(),
            band: vec![],
            style: i,
        });
    }
    std::fs::write("/tmp/look/many.png", p.to_png().unwrap()).unwrap();
}
