package training

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// settingsDiffer is an error that lists the settings of a checkpoint that are not those of this
// run, which may have more steps: then it goes on to these.
func settingsDiffer(checkpoint, run json.RawMessage) error {
	var was, is any
	for _, x := range []struct {
		text json.RawMessage
		into *any
	}{{checkpoint, &was}, {run, &is}} {
		d := json.NewDecoder(bytes.NewReader(x.text))
		d.UseNumber() // seeds have more digits than a float64
		if err := d.Decode(x.into); err != nil {
			return err
		}
	}
	before, now := make(map[string]string), make(map[string]string)
	flatten("", was, before)
	flatten("", is, now)
	all := maps.Clone(before)
	maps.Copy(all, now)
	var differ []string
	for _, key := range slices.Sorted(maps.Keys(all)) {
		a, b := before[key], now[key]
		if a == b || key == "steps" && moreSteps(a, b) {
			continue
		}
		differ = append(differ, fmt.Sprintf("%s: the checkpoint has %s, this run %s", key, cmp.Or(a, "none"), cmp.Or(b, "none")))
	}
	if differ == nil {
		return nil
	}
	return fmt.Errorf("settings differ: %s", strings.Join(differ, "; "))
}

func moreSteps(before, now string) bool {
	var a, b int
	_, errA := fmt.Sscan(before, &a)
	_, errB := fmt.Sscan(now, &b)
	return errA == nil && errB == nil && b > a
}

// flatten notes the values in v by their dotted keys.
func flatten(key string, v any, out map[string]string) {
	switch v := v.(type) {
	case map[string]any:
		for name, x := range v {
			flatten(strings.TrimPrefix(key+"."+name, "."), x, out)
		}
	case []any:
		for i, x := range v {
			flatten(fmt.Sprintf("%s.%d", key, i), x, out)
		}
	default:
		out[key] = fmt.Sprint(v)
	}
}
