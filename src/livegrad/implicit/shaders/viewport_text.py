"""The GLSL of viewports: sphere tracing, section plane, displays of the field and build plate.

`viewport_shader.py` puts the functions of a part before it: `$field`, `$gradient` and `$paint` are their names, and
`$slopes` chooses between the slopes of parameters. All uniforms of the viewport begin with `lg_`, which no parameter
does.
"""

from __future__ import annotations

from string import Template

VERTEX = """#version 300 es
void main()
{
    gl_Position = vec4(vec2(gl_VertexID & 1, gl_VertexID >> 1) * 4.0 - 1.0, 0.0, 1.0);
}
"""

HEAD = """#version 300 es
precision highp float;
precision highp int;
precision highp sampler2D;
precision highp isampler2D;
precision highp usampler2D;
"""

# The view: the pixel at the middle of the canvas looks at lg_target, and pixels are lg_pixel apart.
UNIFORMS = """
uniform vec2 lg_size;
uniform vec3 lg_target;
uniform vec3 lg_right;
uniform vec3 lg_up;
uniform vec3 lg_forward;
uniform float lg_pixel;
uniform vec3 lg_low;
uniform vec3 lg_high;
uniform float lg_steepness;
uniform int lg_steps;
uniform vec4 lg_section;
uniform float lg_spacing;
uniform int lg_display;
uniform float lg_scale;
uniform float lg_plate;
uniform vec3 lg_color;
uniform vec3 lg_background;
uniform vec2 lg_picked;
out vec4 lg_output;
"""

# Compilers inline every call, so the field is called in two places and its gradient in one.
MAIN = Template("""
struct lg_hit { bool found; float t; vec3 face; float cut; };

// The part of a ray that is inside the box and behind the section plane; `face` is the normal where it begins, and
// `cut` where the ray passes the plane inside the box.
bool lg_clip(vec3 origin, out float start, out float end, out vec3 face, out float cut)
{
    vec3 inverse = 1.0 / mix(lg_forward, vec3(1.0e-12), lessThan(abs(lg_forward), vec3(1.0e-12)));
    vec3 nearest = min((lg_low - origin) * inverse, (lg_high - origin) * inverse);
    vec3 farthest = max((lg_low - origin) * inverse, (lg_high - origin) * inverse);
    start = max(nearest.x, max(nearest.y, nearest.z));
    end = min(farthest.x, min(farthest.y, farthest.z));
    face = -sign(lg_forward) * vec3(equal(nearest, vec3(start)));
    cut = -1.0e30;
    if (!(start < end)) { return false; }
    if (dot(lg_section.xyz, lg_section.xyz) == 0.0) { return true; }
    float along = dot(lg_section.xyz, lg_forward);
    float beyond = dot(lg_section.xyz, origin) - lg_section.w;
    if (abs(along) < 1.0e-9) { return beyond <= 0.0; }
    float crossing = -beyond / along;
    if (crossing > start && crossing < end) { cut = crossing; }
    if (along > 0.0) { end = min(end, crossing); }
    else if (crossing > start) { start = crossing; face = lg_section.xyz; }
    return start < end;
}

// Sphere tracing: no step passes the surface, because the field changes by at most lg_steepness in a unit. Steps are
// at least half a pixel long, so that rays along a surface arrive. A step that ends inside is bisected. `face` is the
// normal of a hit on the box or the section plane, and zero for others.
lg_hit lg_trace(vec3 origin)
{
    lg_hit hit = lg_hit(false, 0.0, vec3(0.0), -1.0e30);
    float start, end;
    vec3 face;
    if (!lg_clip(origin, start, end, face, hit.cut)) { return hit; }
    float shortest = 0.5 * lg_pixel;
    float t = start, outside = start, inside = start;
    int halvings = -1;
    for (int i = 0; i < lg_steps + 16; ++i)
    {
        float value = $field(origin + t * lg_forward);
        if (value < 0.0)
        {
            if (i == 0) { return lg_hit(true, start, face, hit.cut); }
            inside = t;
            halvings = max(halvings, 0);
        }
        else
        {
            if (halvings < 0 && t >= end) { return hit; }
            outside = t;
        }
        if (halvings < 0)
        {
            float reach = value / lg_steepness;
            t = min(end, t + (reach > shortest ? reach : shortest));
            continue;
        }
        t = 0.5 * (outside + inside);
        if (++halvings > 16) { return lg_hit(true, t, vec3(0.0), hit.cut); }
    }
    return hit;
}

vec3 lg_encode(vec3 linear)
{
    return mix(1.055 * pow(max(linear, 0.0031308), vec3(1.0 / 2.4)) - 0.055, linear * 12.92,
        lessThanEqual(linear, vec3(0.0031308)));
}

vec3 lg_light(vec3 paint, vec3 normal)
{
    vec3 key_direction = normalize(-lg_forward * 0.7 + lg_up * 0.6 - lg_right * 0.45);
    vec3 fill_direction = normalize(-lg_forward * 0.4 + lg_right * 0.8);
    float key = max(dot(normal, key_direction), 0.0);
    float fill = max(dot(normal, fill_direction), 0.0);
    float rim = 1.0 - clamp(-dot(normal, lg_forward), 0.0, 1.0);
    return clamp(paint * (0.22 + 0.68 * key + 0.16 * fill) + 0.06 * rim * rim, 0.0, 1.0);
}

// From blue for -1 over white to red for 1; grey is no number.
vec3 lg_diverging(float x)
{
    if (!(abs(x) < 1.0e30)) { return vec3(0.5); }
    float s = clamp(x, -1.0, 1.0);
    vec3 end = s < 0.0 ? vec3(0.13, 0.34, 0.67) : vec3(0.75, 0.17, 0.16);
    return mix(vec3(0.97), end, sqrt(abs(s)));
}

float lg_slope(int index, vec3 point)
{
$slopes    return 0.0;
}

vec3 lg_shade(vec3 point, vec3 normal, float steepness)
{
    if (lg_display == 1) { return 0.5 + 0.5 * normal; }
    if (lg_display == 2) { return lg_light(lg_diverging(steepness / lg_scale - 1.0), normal); }
    if (lg_display >= 3)
    {
        // Where the field stays zero as the parameter turns: the surface moves by this much along its normal.
        float moved = -lg_slope(lg_display - 3, point) / max(steepness, 1.0e-8);
        return lg_light(lg_diverging(moved / lg_scale), normal);
    }
    return lg_light($paint, normal);
}

// The field on the section plane: colours by sign, lines at multiples of the spacing, and a bold line at zero.
vec3 lg_field(vec3 point, float steepness)
{
    float value = $field(point);
    float width = max(steepness * lg_pixel, 1.0e-12);
    float steps = value / lg_spacing;
    float line = abs(steps - roundEven(steps)) * lg_spacing / width;
    vec3 color = lg_diverging(value / (8.0 * lg_spacing));
    color = mix(color * 0.72, color, smoothstep(0.3, 1.2, line));
    return mix(vec3(0.08), color, smoothstep(0.8, 1.8, abs(value) / width));
}

// The plate under the part: a grid of squares, drawn over the background; alpha is 0 outside.
vec4 lg_plate_at(vec3 origin, float before)
{
    if (lg_plate <= 0.0 || abs(lg_forward.z) < 1.0e-6) { return vec4(0.0); }
    float t = (lg_low.z - origin.z) / lg_forward.z;
    vec2 place = (origin + t * lg_forward).xy;
    vec2 border = 0.15 * (lg_high.xy - lg_low.xy);
    if (t > before || any(lessThan(place, lg_low.xy - border)) || any(greaterThan(place, lg_high.xy + border)))
    {
        return vec4(0.0);
    }
    vec2 cell = place / lg_plate;
    vec2 line = abs(cell - roundEven(cell)) * lg_plate / (lg_pixel * vec2(length(vec2(lg_right.x, lg_up.x)),
        length(vec2(lg_right.y, lg_up.y))) + 1.0e-12);
    float ink = 1.0 - smoothstep(0.4, 1.2, min(line.x, line.y));
    return vec4(vec3(0.42, 0.47, 0.55), mix(0.10, 0.45, ink));
}

vec4 lg_bytes(float value)
{
    uint word = floatBitsToUint(value);
    return vec4(word & 255u, (word >> 8) & 255u, (word >> 16) & 255u, word >> 24) / 255.0;
}

vec3 lg_origin(vec2 pixel)
{
    vec2 place = (pixel - 0.5 * lg_size) * lg_pixel;
    return lg_target + lg_right * place.x + lg_up * place.y;
}

void main()
{
    bool picking = lg_picked.x >= 0.0;
    vec3 origin = lg_origin(picking ? lg_picked : gl_FragCoord.xy);
    lg_hit hit = lg_trace(origin);
    bool shows_field = !picking && lg_spacing > 0.0 && hit.cut > -1.0e29 && (!hit.found || hit.cut <= hit.t);
    float depth = shows_field ? hit.cut : hit.found ? hit.t : 1.0e30;
    vec3 point = origin + (depth < 1.0e29 ? depth : 0.0) * lg_forward;
    vec3 gradient = depth < 1.0e29 ? $gradient(point) : vec3(0.0);
    float steepness = length(gradient);
    vec3 normal = hit.face != vec3(0.0) ? hit.face : steepness > 1.0e-8 ? gradient / steepness : vec3(0.0);
    if (picking)
    {
        // A picture of 8 × 1 pixels, whose bytes are floats: whether there is a surface, its point and its normal.
        float answer[7] = float[7](hit.found ? 1.0 : 0.0, point.x, point.y, point.z, normal.x, normal.y, normal.z);
        lg_output = lg_bytes(answer[clamp(int(gl_FragCoord.x), 0, 6)]);
        return;
    }
    vec3 color = lg_background;
    if (shows_field) { color = lg_field(point, steepness); }
    else if (hit.found) { color = lg_shade(point, normal, steepness); }
    vec4 plate = lg_plate_at(origin, depth);
    lg_output = vec4(mix(color, plate.rgb, plate.a), 1.0);
}
""")
