struct lg_tuple0 { r0: f32, r1: f32, r2: f32, r3: f32, r4: f32 }
fn squares(p0: lg_tuple0) -> lg_tuple0
{
    let v0: lg_tuple0 = lg_tuple0((p0.r0 * p0.r0), (p0.r1 * p0.r1), (p0.r2 * p0.r2), (p0.r3 * p0.r3), (p0.r4 * p0.r4));
    return lg_tuple0((v0.r0 + 216.0f), (v0.r1 + 216.0f), (v0.r2 + 216.0f), (v0.r3 + 216.0f), (v0.r4 + 216.0f));
}
