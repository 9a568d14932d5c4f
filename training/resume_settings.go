package training

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"glimpse/internal/settings"
)

// settingsDiffer is an error that lists the settings of a checkpoint that differ from this
// run's, which may have more steps: then it goes on to these.
func settingsDiffer(checkpoint, run json.RawMessage) error {
	all, err := settings.Differences(checkpoint, run)
	if err != nil {
		return err
	}
	var differ []string
	for _, d := range all {
		if d.Key == "steps" && moreSteps(d.Was, d.Is) {
			continue
		}
		differ = append(differ, fmt.Sprintf("%s: the checkpoint has %s, this run %s", d.Key, cmp.Or(d.Was, "none"), cmp.Or(d.Is, "none")))
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
