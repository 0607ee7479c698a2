fn scaled(p0: f32) -> f32
{
    return (p0 * 213.0f);
}

fn scaled_2(p0: f32) -> f32
{
    return (p0 * 212.0f);
}

fn sum(p0: f32) -> f32
{
    let v0: f32 = scaled_2(p0);
    let v1: f32 = scaled(p0);
    return (v0 + v1);
}
