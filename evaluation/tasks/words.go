package tasks

import (
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Words that tasks are made of. RULER takes those of the Python package wonderwords; these
// are of the same kinds.
var (
	adjectives = strings.Fields(`able ancient angry annual awake awful bare basic bitter blank blind bold brave brief bright
broad broken busy calm careful cheap cheerful clean clear clever close cold common complex cool crazy creamy crisp cruel
curious curly damp dark deaf dear deep dense dim distant dizzy double dry dull eager early easy elastic elegant empty equal
even exact exotic faint fair famous fancy fast fatal fierce final fine firm flat fluffy foolish formal fragile frank free
fresh friendly frozen full funny gentle giant glad global golden good graceful grand grateful great greedy grim handy happy
hard harsh heavy helpful hidden high hollow honest huge humble hungry icy ideal idle ill inner instant jealous jolly juicy
keen kind known large late lazy lean legal light little lively local lonely long loose loud lovely low loyal lucky mad
magic major married massive mellow mighty mild minor misty modern modest moist muddy narrow nasty native neat nervous new
nice noble noisy normal odd old open orange ordinary outer pale patient perfect plain pleasant plenty polite poor precious
pretty prime private proper proud pure quick quiet rapid rare raw ready real regular rich rigid ripe rough round royal rude
rural sad safe salty scarce secret secure selfish serious shaggy shallow sharp shiny short shy silent silly silver simple
single sleepy slim slow small smart smooth soft solid sour spare special spicy square stale steady steep stiff strange
strict strong stupid sturdy subtle sudden sunny super sweet swift tall tame tasty tender tense thick thin thirsty tidy tight
tiny tired tough tricky true ugly unique upper urban useful usual vague vast violet visible vital vivid warm weak wealthy
weary weird wet white whole wicked wide wild wise witty wonderful wooden worried young`)
	nouns = strings.Fields(`account acorn actor advice airport album alley anchor angle animal ankle apple apron arch arena arm
armor arrow artist atlas attic aunt author autumn badge baker balcony ballet bamboo banana banjo bank banner barrel basin
basket beach beacon bean bear beard bed beetle bell belt bench berry bicycle bird biscuit blanket blossom board boat bone
book boot border bottle boulder bowl bracelet branch brass bread breeze brick bridge broom brush bubble bucket buffalo
builder bullet bundle butter button cabin cable cactus cage camel camera camp canal candle candy cannon canoe canvas canyon
captain caravan card cargo carpet carrot cart castle cattle cave cellar chain chair chalk chapel chapter cherry chess chest
chicken chimney chorus circle circus citizen clay cliff clock closet cloth cloud clover coach coal coast coat coconut coffee
coin collar colony column comb comet compass cookie copper coral corn corner cotton couch cousin cow crab cradle crane crayon
creek crow crown crystal cup curtain cushion custom dancer daisy dawn deer desert desk diamond diary dinner dish doctor dog
doll dolphin donkey door dragon drawer dream dress drum duck dust eagle earth echo editor egg elbow elephant engine envelope
estate evening falcon farm farmer father feather fence fern ferry festival field figure finger fire fish flag flame flower
flute fog forest fork fossil fountain fox frame friend frog fruit furnace galaxy gallery garden garlic gate ghost giraffe glacier
glass globe glove goat goose grain grape grass gravel guard guest guitar hammer harbor harp harvest hat hawk hedge helmet
herb hero hill honey hook horizon horn horse hotel hour house iceberg island ivory jacket jar jewel journal journey judge
jungle kettle key kitchen kite kitten knee knife knight knot ladder lake lamp lantern laptop lawyer leaf leather lemon letter
lettuce lever library lily lion lizard lobster lock log lunch machine magnet mango map maple marble market marsh mask meadow
medal melon merchant meteor midnight mill mine mirror mitten monkey moon morning moss motor mountain mouse museum mushroom
music nail napkin needle nest net noodle notebook nurse oak oasis oat ocean office olive onion orchard orchid organ otter oven
owl owner ox oyster paddle page palace palm panda paper parade parcel park parrot pasta path peach peanut pear pearl pebble
pen pencil penguin people pepper piano picnic picture pig pigeon pillow pilot pine pipe pirate planet plate player plum pocket
poem pond pony poppy porch potato pottery powder prairie prince printer prize pumpkin puppet puppy puzzle pyramid quail quarry
queen quilt rabbit radio raft rail rain ranch raven reef ribbon rice ring river road robin robot rock rocket roof room rope rose
ruby rug ruler saddle sail sailor salad salmon salt sand sandal satellite sauce saddlebag scarf school scooter screw sculptor
season seed shadow sheep shelf shell shelter ship shirt shoe shore shoulder shovel signal silk singer sister skirt sky sled
slipper snail snake snow soap sock soldier soup spark sparrow spider spoon squirrel stable stair stamp star station statue steam
stone stool storm stove straw stream street student sugar summer sunset surgeon swan sweater sword table tailor teacher teapot
temple tent theater thread throne thunder ticket tiger timber toast tomato tool torch tower town toy tractor train tray treasure
tree tribe truck trumpet tulip tunnel turkey turtle uncle valley vase vessel village violin visitor volcano wagon waiter wall
walnut watch water wave weather whale wheat wheel whistle willow window winter wizard wolf woman wool worker wrist writer yard
yogurt zebra`)
	verbs = strings.Fields(`accept admire admit advise agree allow amuse announce answer appear argue arrange arrive avoid bake
balance bathe become begin behave believe belong blink blush borrow bounce breathe bring build burn bury call carry carve
catch cause cheat cheer choose chew climb collect combine compare complain confess confuse consider contain continue copy
correct count cover crawl create cross cry dance decide decorate delay deliver depend describe deserve destroy detect develop
disagree discover divide drag drift drink drop earn eat educate employ encourage enjoy enter escape examine excite exist expand
expect explain explode extend face fade fail fasten fetch fill fit fix float flow fly fold follow forget forgive gather gaze
give glow grab greet grow guess guide hand hang happen hear heal help hide hope hug hunt hurry identify imagine improve
include increase inform inject invent invite join joke juggle jump kneel knit knock laugh launch learn leave lend lift listen
load lose manage march measure melt mend mix move multiply notice obey observe obtain occur offer order owe pack paint park
pause peel perform persuade pick plant play point polish pour practise pray prefer prepare present preserve pretend prevent
produce promise protect provide pull punch push question race reach read realise receive recognise record reduce reflect refuse
regret reject relax rely remember remind remove repair repeat reply rescue retire return rinse ruin run scatter scold scratch
scream search seem select sell send separate serve settle sew shake share shiver shout shrink sing sit sketch skip smile sneeze
solve sort speak spell spill spread squeeze stay steer stir stop strengthen stretch stroke suffer suggest supply support
suppose surprise swim switch talk taste teach tease tell thank think tie touch trace trade travel treat tremble trust try turn
twist type understand undress unite unlock untidy vanish visit wait wake walk wander want warn wash waste wave whisper win wipe
wish wonder worry wrap yawn yell`)
)

// plainList is all words, each once; there are about a thousand.
var plainList = sync.OnceValue(func() []string {
	all := slices.Concat(adjectives, nouns, verbs)
	slices.Sort(all)
	return slices.Compact(all)
})

// wordList are so many different words in a random order. Where there are not enough, pairs
// joined by a hyphen are among them.
func wordList(rng *rand.Rand, n int) []string {
	plain := plainList()
	if n <= len(plain) {
		out := slices.Clone(plain)
		rng.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
		return out[:n]
	}
	out := slices.Clone(plain)
	for _, i := range rng.Perm(len(adjectives) * len(nouns))[:min(n-len(plain), len(adjectives)*len(nouns))] {
		out = append(out, adjectives[i/len(nouns)]+"-"+nouns[i%len(nouns)])
	}
	rng.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

// randomPair is a key as RULER's: an adjective and a noun.
func randomPair(rng *rand.Rand) string {
	return adjectives[rng.IntN(len(adjectives))] + "-" + nouns[rng.IntN(len(nouns))]
}

// randomNumber has seven digits.
func randomNumber(rng *rand.Rand) string { return strconv.Itoa(1_000_000 + rng.IntN(9_000_000)) }

// randomUUID is one of version 4 (RFC 9562, section 5.4).
func randomUUID(rng *rand.Rand) string {
	var b [16]byte
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	h := hex.EncodeToString(b[:])
	return fmt.Sprintf("%s-%s-%s-%s-%s", h[:8], h[8:12], h[12:16], h[16:20], h[20:])
}
