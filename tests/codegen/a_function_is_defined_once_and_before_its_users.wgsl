fn size(p0: vec3<f32>) -> f32
{
    let v0: f32 = length(p0);
    return (v0 * 210.0f);
}

fn both(p0: vec3<f32>) -> f32
{
    let v0: f32 = size(p0);
    let v1: vec3<f32> = (p0 * p0);
    let v2: f32 = size(v1);
    return (v0 + v2);
}
