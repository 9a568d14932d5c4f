package main

import (
	"bytes"
	"encoding/json"
	"math/big"
	"slices"
	"strconv"
	"strings"
)

// dumps writes a JSON text as Python's json.dumps with ensure_ascii=False does. With positions, the
// members of objects are sorted by them, those without one last.
func dumps(text json.RawMessage, positions map[string]int) string {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var out strings.Builder
	dump(d, &out, positions)
	return out.String()
}

type member struct{ name, value string }

func dump(d *json.Decoder, out *strings.Builder, positions map[string]int) {
	token, err := d.Token()
	if err != nil {
		panic(err) // the text was read before
	}
	switch t := token.(type) {
	case nil:
		out.WriteString("null")
	case bool:
		out.WriteString(strconv.FormatBool(t))
	case string:
		dumpString(out, t)
	case json.Number:
		out.WriteString(dumpNumber(t.String()))
	case json.Delim:
		out.WriteString(t.String())
		var members []member
		for d.More() {
			var name, value strings.Builder
			if t == '{' {
				dump(d, &name, nil)
				name.WriteString(": ")
			}
			dump(d, &value, positions)
			members = append(members, member{name.String(), value.String()})
		}
		if t == '{' && positions != nil {
			place := func(m member) int {
				if at, known := positions[strings.TrimSuffix(m.name, ": ")]; known {
					return at
				}
				return len(positions)
			}
			slices.SortStableFunc(members, func(a, b member) int { return place(a) - place(b) })
		}
		for i, m := range members {
			if i > 0 {
				out.WriteString(", ")
			}
			out.WriteString(m.name + m.value)
		}
		shut, _ := d.Token()
		out.WriteString(shut.(json.Delim).String())
	}
}

func dumpString(out *strings.Builder, s string) {
	out.WriteByte('"')
	for _, c := range s {
		switch i := strings.IndexRune("\"\\\b\f\n\r\t", c); {
		case i >= 0:
			out.WriteString(`\` + `"\bfnrt`[i:i+1])
		case c < 0x20:
			out.WriteString(`\u00` + strconv.FormatInt(int64(c)+0x100, 16)[1:])
		default:
			out.WriteRune(c)
		}
	}
	out.WriteByte('"')
}

// dumpNumber is an integer as it is, and other numbers as Python writes a float64.
func dumpNumber(text string) string {
	if _, integer := new(big.Int).SetString(text, 10); integer {
		return text
	}
	x, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return text
	}
	short := strconv.FormatFloat(x, 'e', -1, 64)
	exponent, _ := strconv.Atoi(short[strings.IndexByte(short, 'e')+1:])
	if exponent < -4 || exponent >= 16 {
		return short
	}
	if short = strconv.FormatFloat(x, 'f', -1, 64); !strings.Contains(short, ".") {
		short += ".0"
	}
	return short
}

// memberOrder is where the names of properties come first in a schema, by their JSON.
func memberOrder(schema json.RawMessage) map[string]int {
	out := make(map[string]int)
	d := json.NewDecoder(bytes.NewReader(schema))
	var value func(names bool)
	value = func(names bool) {
		token, _ := d.Token()
		open, nested := token.(json.Delim)
		if !nested {
			return
		}
		for d.More() {
			under := false
			if open == '{' {
				key, _ := d.Token()
				var name strings.Builder
				if dumpString(&name, key.(string)); names {
					if _, known := out[name.String()]; !known {
						out[name.String()] = len(out)
					}
				}
				under = !names && key == "properties"
			}
			value(under)
		}
		d.Token()
	}
	value(false)
	return out
}
