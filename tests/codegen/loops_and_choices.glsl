struct lg_tuple0 { float r0; };
float lg_atan_f32(float x)
{
    float a = abs(x);
    float start = 0.0f;
    float t = a;
    if (a > 2.4142136) { start = 1.5707963; t = -1.0 / a; }
    else if (a > 0.41421357) { start = 0.78539816; t = (a - 1.0) / (a + 1.0); }
    float z = t * t;
    float tail = ((0.080537446 * z - 0.13877685) * z + 0.19977711) * z - 0.33332950;
    float y = start + (tail * z * t + t);
    return uintBitsToFloat(floatBitsToUint(y) | (floatBitsToUint(x) & 0x80000000u));
}

float lg_atan2_f32(float y, float x)
{
    if ((floatBitsToUint(x) & 0x7fffffffu) > 0x7f800000u) { return x; }
    if ((floatBitsToUint(y) & 0x7fffffffu) > 0x7f800000u) { return y; }
    float across = abs(x);
    float up = abs(y);
    if (across == uintBitsToFloat(0x7f800000u) && up == uintBitsToFloat(0x7f800000u)) { across = 1.0; up = 1.0; }
    float angle = 0.0f;
    if (up > across) { angle = 1.5707963 - lg_atan_f32(across / up); }
    else if (across > 0.0) { angle = lg_atan_f32(up / across); }
    if ((floatBitsToUint(x) & 0x80000000u) != 0u) { angle = 3.1415927 - angle; }
    return uintBitsToFloat((floatBitsToUint(angle) & 0x7fffffffu) | (floatBitsToUint(y) & 0x80000000u));
}

float body(int p0, float p1)
{
    bool v0 = (p1 > 218.0f);
    float v1 = (p1 + 1.0f);
    float v2 = lg_atan2_f32(p1, v1);
    float v3 = (p1 * 2.0f);
    return (v0 ? v2 : v3);
}

float turn(float p0)
{
    lg_tuple0 s0 = lg_tuple0(p0);
    for (int i1 = 0; i1 < 5; ++i1) s0 = lg_tuple0(body(i1, s0.r0));
    return s0.r0;
}
