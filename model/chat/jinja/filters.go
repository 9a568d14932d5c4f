package jinja

type filterFunc func(r *run, v value, a *arguments) (value, error)

// filters are those of Jinja, but for those that make HTML or need chance: pprint,
// random, striptags, urlize, wordwrap, xmlattr.
var filters map[string]filterFunc

func init() {
	filters = map[string]filterFunc{
		"abs": filterAbs, "attr": filterAttr, "batch": filterBatch, "capitalize": ofText("capitalize", capitalize), "center": filterCenter,
		"count": filterLength, "d": filterDefault, "default": filterDefault, "dictsort": filterDictSort, "e": filterEscape,
		"escape": filterEscape, "filesizeformat": filterFileSize, "first": filterFirst, "float": filterFloat, "forceescape": filterForceEscape,
		"format": filterFormat, "groupby": filterGroupBy, "indent": filterIndent, "int": filterInt, "items": filterItems, "join": filterJoin,
		"last": filterLast, "length": filterLength, "list": filterList, "lower": ofText("lower", lower), "map": filterMap,
		"max": extreme("max", ">"), "min": extreme("min", "<"), "reject": choose(false, false), "rejectattr": choose(true, false),
		"replace": filterReplace, "reverse": filterReverse, "round": filterRound, "safe": filterSafe, "select": choose(false, true),
		"selectattr": choose(true, true), "slice": filterSlice, "sort": filterSort, "string": ofText("string", func(s string) string { return s }),
		"sum": filterSum, "title": filterTitle, "tojson": toJSON, "trim": filterTrim, "truncate": filterTruncate, "unique": filterUnique,
		"upper": ofText("upper", upper), "urlencode": filterURLEncode, "wordcount": filterWordCount,
	}
}
