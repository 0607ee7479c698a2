struct lg_tuple0 { r0: f32 }
fn lg_infinity() -> f32 { var bits = 0x7f800000u; return bitcast<f32>(bits); }
fn lg_atan_f32(x: f32) -> f32
{
    let a = abs(x);
    var start = 0.0f;
    var t = a;
    if (a > 2.4142136) { start = 1.5707963; t = -1.0 / a; }
    else if (a > 0.41421357) { start = 0.78539816; t = (a - 1.0) / (a + 1.0); }
    let z = t * t;
    let tail = ((0.080537446 * z - 0.13877685) * z + 0.19977711) * z - 0.33332950;
    let y = start + (tail * z * t + t);
    return bitcast<f32>(bitcast<u32>(y) | (bitcast<u32>(x) & 0x80000000u));
}

fn lg_atan2_f32(y: f32, x: f32) -> f32
{
    if ((bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u) { return x; }
    if ((bitcast<u32>(y) & 0x7fffffffu) > 0x7f800000u) { return y; }
    var across = abs(x);
    var up = abs(y);
    if (across == lg_infinity() && up == lg_infinity()) { across = 1.0; up = 1.0; }
    var angle = 0.0f;
    if (up > across) { angle = 1.5707963 - lg_atan_f32(across / up); }
    else if (across > 0.0) { angle = lg_atan_f32(up / across); }
    if ((bitcast<u32>(x) & 0x80000000u) != 0u) { angle = 3.1415927 - angle; }
    return bitcast<f32>((bitcast<u32>(angle) & 0x7fffffffu) | (bitcast<u32>(y) & 0x80000000u));
}

fn body(p0: i32, p1: f32) -> f32
{
    let v0: bool = (p1 > 218.0f);
    let v1: f32 = (p1 + 1.0f);
    let v2: f32 = lg_atan2_f32(p1, v1);
    let v3: f32 = (p1 * 2.0f);
    return select(v3, v2, v0);
}

fn turn(p0: f32) -> f32
{
    var s0: lg_tuple0 = lg_tuple0(p0);
    for (var i1: i32 = 0; i1 < 5; i1++) {
        s0 = lg_tuple0(body(i1, s0.r0));
    }
    return s0.r0;
}
