package scoring

import (
	"regexp"
	"strconv"
	"strings"
)

func init() {
	Metrics.Add("math", Metric{
		About: `1 if the last \boxed{} of the answer, or without one its last number, is the reference`,
		Source: "MATH, Hendrycks et al. 2021, arXiv:2103.03874, modeling/math_equivalence.py, is_equiv, " +
			"and equality of plain numbers (AIME writes 025 for 25)",
		Score: best(func(prediction, answer string) float64 {
			if boxed, ok := lastBoxed(answer); ok { // a solution as a reference
				answer = boxed
			}
			got, ok := lastBoxed(prediction)
			if !ok {
				got = lastMatch(plainNumber, prediction)
			}
			return indicator(sameExpression(got, answer))
		}),
	})
}

var plainNumber = regexp.MustCompile(`-?[0-9][0-9,]*(?:\.[0-9]+)?`)

// lastBoxed returns what is in the last \boxed{} or \fbox{} whose braces close.
func lastBoxed(text string) (string, bool) {
	for end := len(text); end > 0; {
		at := max(strings.LastIndex(text[:end], `\boxed{`), strings.LastIndex(text[:end], `\fbox{`))
		if at < 0 {
			return "", false
		}
		from := at + strings.IndexByte(text[at:], '{') + 1
		depth := 1
		for i := from; i < len(text); i++ {
			switch text[i] {
			case '{':
				depth++
			case '}':
				depth--
			}
			if depth == 0 {
				return text[from:i], true
			}
		}
		end = at
	}
	return "", false
}

// sameExpression compares normalised LaTeX, or two plain numbers by value.
func sameExpression(a, b string) bool {
	a, b = normalizedLaTeX(a), normalizedLaTeX(b)
	if a == b {
		return true
	}
	x, err := strconv.ParseFloat(a, 64)
	y, err2 := strconv.ParseFloat(b, 64)
	return err == nil && err2 == nil && decimal.MatchString(a) && decimal.MatchString(b) && x == y
}

var (
	decimal   = regexp.MustCompile(`^-?[0-9]+(?:\.[0-9]+)?$`)
	thousands = regexp.MustCompile(`^-?[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]+)?$`)
	words     = regexp.MustCompile(`\\(?:text|mathrm|textbf|mbox)\{([^{}]*)\}`)
	units     = regexp.MustCompile(`\\text\{ [^{}]*\}$`)
	shortFrac = regexp.MustCompile(`\\frac([0-9])([0-9])`)
	shortRoot = regexp.MustCompile(`\\sqrt([0-9a-zA-Z])`)
	fraction  = regexp.MustCompile(`^(-?)([0-9]+)/([0-9]+)$`)
	variable  = regexp.MustCompile(`^[a-zA-Z]=`)
)

// spacing is LaTeX that does not change a value.
var spacing = strings.NewReplacer(`\!`, "", `\,`, "", `\;`, "", `\:`, "", `\ `, "", `\left`, "", `\right`, "",
	`^{\circ}`, "", `^\circ`, "", `\%`, "", `%`, "", `\$`, "", `$`, "", `\(`, "", `\)`, "", "tfrac", "frac", "dfrac", "frac")

// normalizedLaTeX removes units, spacing and signs of currency, percent and degree, and
// writes fractions and roots in one way.
func normalizedLaTeX(s string) string {
	s = units.ReplaceAllString(strip(s), "")
	s = words.ReplaceAllString(s, "$1")
	s = strings.Join(fields(spacing.Replace(s)), "")
	s = strings.TrimSuffix(s, ".")
	s = variable.ReplaceAllString(s, "")
	if strings.HasPrefix(s, ".") {
		s = "0" + s
	}
	if thousands.MatchString(s) {
		s = strings.ReplaceAll(s, ",", "")
	}
	s = shortFrac.ReplaceAllString(s, `\frac{$1}{$2}`)
	s = shortRoot.ReplaceAllString(s, `\sqrt{$1}`)
	return fraction.ReplaceAllString(s, `$1\frac{$2}{$3}`)
}
