package scoring

import (
	"regexp"
	"strings"
)

func init() {
	const source = "GSM8K, Cobbe et al. 2021, arXiv:2110.14168; lm-evaluation-harness, tasks/gsm8k/gsm8k.yaml, version 3, "
	Metrics.Add("gsm8k", Metric{
		About:  "1 if the number after #### is the one after #### in the reference",
		Source: source + "strict-match",
		Score:  best(func(p, a string) float64 { return sameNumber(firstMatch(strictNumber, p), a) }),
	})
	Metrics.Add("gsm8k_flexible", Metric{
		About:  "1 if the last number of the answer is the one after #### in the reference",
		Source: source + "flexible-extract",
		Score:  best(func(p, a string) float64 { return sameNumber(lastMatch(looseNumber, p), a) }),
	})
}

var (
	strictNumber = regexp.MustCompile(`#### (-?[0-9.,]+)`)
	looseNumber  = regexp.MustCompile(`-?[$0-9.,]{2,}|-?[0-9]+`)
	untilNumber  = regexp.MustCompile(`(?s).*#### `)
)

func firstMatch(pattern *regexp.Regexp, text string) string {
	if match := pattern.FindStringSubmatch(text); match != nil {
		return match[len(match)-1]
	}
	return "[invalid]"
}

func lastMatch(pattern *regexp.Regexp, text string) string {
	if all := pattern.FindAllString(text, -1); all != nil {
		return all[len(all)-1]
	}
	return "[invalid]"
}

// sameNumber compares without commas, dollar signs, a full stop at the end and
// the solution before ####.
func sameNumber(number, answer string) float64 {
	clean := func(s string) string {
		s = strings.NewReplacer(",", "", "$", "").Replace(strip(s))
		return lower(strings.TrimSuffix(untilNumber.ReplaceAllString(s, ""), "."))
	}
	return indicator(clean(number) == clean(answer))
}
