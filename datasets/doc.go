// Package datasets makes and reads what adapters are trained and judged on.
//
// # Synthetic long-context tasks
//
// The built-in reference model knows one small world: prompts of keys (people),
// values (things), colours and fillers, in the 480 words of vocabulary.txt. A prompt
// hides facts in filler: key-value pairs ("anna lamp harbor"), keys that come back with
// another value, links between keys ("anna calls bruno"), one section in brackets,
// numbered items in any order ("second castle"), colours with one most frequent,
// or topics that the text returns to. The question asks for some of them, after the
// context as a user would ask, or before it:
//
//	<bos> <user> <context> … </context> <ask> anna <eot> <header> <assistant> <newline>
//	<bos> <user> <copy> <context> … </context> <eot> <header> <assistant> <newline>
//
// The tasks turns_key and turns_section go on after the answer with a second question
// about the same context.
//
// An answer is a few tokens that stand in the prompt, so it is right or wrong,
// and an eviction policy that drops them cannot answer. Which facts a question
// needs is unknown while the context is read, and each kind of question needs
// others: that is what separates eviction policies.
//
// Each [Task] is one kind of question and one file that registers itself in
// [Tasks]. A [Stream] draws examples from a list of tasks; example i is a
// function of the stream's settings and i alone, so a run that is resumed goes
// on where it stopped, and workers share a stream without talking. Training,
// validation and test examples cannot overlap, because the hash of an example's
// prompt says which [Split] it belongs to, whatever drew it.
//
// # Files
//
// A pair file holds prompts with the responses that a model itself generated
// for them, as token ids: the training data of a learned eviction policy. It
// names the model, the hash of its weights and the sampling settings, because
// responses of another model are the wrong target. [CreatePairs] writes one,
// [OpenPairs] reads it. [OpenSource] reads the prompts that users bring: JSON in any
// arrangement, CSV and TSV, Parquet and plain text, told by the file's name and content.
//
// All readers stream, refuse lines above [MaxLine] bytes, and name the file, the
// line and the field in their errors.
package datasets
