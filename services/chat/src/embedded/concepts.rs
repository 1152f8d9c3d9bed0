//! Everyday things and deeds that share no letters between languages, or between a question and its answer.
//! Never: a device's own words, or whole sentences.

/// How much it says that two texts speak of the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// What something is about.
    Topic,
    /// What is done with it.
    Deed,
    /// A value that it can have.
    Value,
    /// Said of nearly everything.
    Vague,
}

/// Words that mean the same. English ones are stems, as `words` makes them.
pub(super) struct Concept {
    pub(super) kind: Kind,
    pub(super) english: &'static [&'static str],
    pub(super) chinese: &'static [&'static str],
}

macro_rules! concepts {
    ($($name:ident $kind:ident [$($english:literal)*] [$($chinese:literal)*];)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub(super) enum Meaning { $($name),* }
        /// All of them.
        pub(super) const CONCEPTS: &[(Meaning, Concept)] = &[
            $((Meaning::$name, Concept { kind: Kind::$kind, english: &[$($english),*], chinese: &[$($chinese),*] })),*
        ];
    };
}

concepts! {
    Time Topic ["time" "clock" "hour" "oclock"] ["时间" "時間" "几点" "幾點" "点钟" "时刻" "钟点" "时钟" "钟"];
    Date Topic ["date" "weekday" "calendar" "day"] ["日期" "几号" "幾號" "星期几" "礼拜几" "周几" "哪天" "日历"];
    Light Topic ["light" "lamp" "led" "bulb"] ["灯光" "电灯" "台灯" "灯" "燈" "照明"];
    Brightness Topic ["brightness" "bright" "brighter" "dim" "dimmer"] ["亮度" "明暗" "亮" "暗"];
    Color Topic ["color" "colour"] ["颜色" "顏色" "色彩" "变色"];
    Music Topic ["music" "song" "track" "tune" "melody" "playlist"] ["音乐" "音樂" "歌曲" "首歌" "歌" "曲子" "乐曲"];
    Volume Topic ["volume" "loud" "louder" "quieter" "loudness"] ["音量" "声音" "聲音" "大声" "小声"];
    Battery Topic ["battery" "charge" "accumulator"] ["电量" "電量" "电池" "電池" "剩余电"];
    Temperature Topic ["temperature" "temp" "warm" "cold" "hot" "thermometer" "degree"] ["温度" "溫度" "气温" "几度" "多少度" "冷不冷" "热不热" "多热" "多冷"];
    Humidity Topic ["humidity" "humid" "moisture"] ["湿度" "濕度" "潮湿"];
    Weather Topic ["weather" "forecast" "rain" "sunny" "umbrella"] ["天气" "天氣" "气象" "下雨" "预报"];
    Walk Topic ["move" "go" "walk" "drive" "travel" "step"] ["移动" "移動" "行走" "走" "行驶" "前进" "后退" "运动"];
    Rotate Topic ["rotate" "spin" "pivot"] ["旋转" "旋轉" "转动" "转圈" "转弯" "转身" "转"];
    Photo Topic ["photo" "picture" "camera" "snapshot" "photograph" "image" "selfie"] ["照片" "拍照" "拍摄" "相片" "相机" "照相" "拍" "图片"];
    Video Topic ["video" "film" "movie" "record"] ["视频" "录像" "影片" "电影" "录制"];
    Door Topic ["door" "gate" "garage"] ["大门" "车库门" "门" "門"];
    Window Topic ["window"] ["窗户" "窗"];
    Curtain Topic ["curtain" "blind" "shutter"] ["窗帘" "百叶窗"];
    Fan Topic ["fan" "ventilator"] ["风扇" "电扇"];
    Cooling Topic ["aircon" "conditioner" "thermostat" "heating" "heater"] ["空调" "空調" "暖气" "恒温器"];
    Screen Topic ["screen" "display" "monitor"] ["屏幕" "显示屏" "显示器"];
    Alarm Topic ["alarm" "wake" "remind" "reminder"] ["闹钟" "鬧鐘" "提醒" "叫醒"];
    Timer Topic ["timer" "countdown" "stopwatch"] ["倒计时" "计时器" "定时器" "计时" "定时"];
    File Topic ["file" "document" "note"] ["文件" "文档" "檔案" "笔记"];
    Message Topic ["message" "mail" "email" "sms"] ["消息" "短信" "邮件" "信息"];
    Search Topic ["search" "find" "lookup" "google"] ["搜索" "搜尋" "查找" "搜" "寻找"];
    Speak Topic ["say" "speak" "announce" "pronounce"] ["朗读" "说话" "说出" "说" "說" "念" "播报" "讲"];
    Repeat Topic ["echo" "repeat"] ["重复" "复述" "回声"];
    Dance Topic ["dance"] ["跳舞" "舞蹈"];
    Jump Topic ["jump" "hop"] ["跳跃" "跳"];
    Wave Topic ["wave" "greet" "salute"] ["挥手" "招手"];
    Place Topic ["location" "position" "gps" "coordinate" "where"] ["位置" "定位" "坐标" "在哪里" "在哪儿" "在哪" "哪里"];
    Speed Topic ["speed" "velocity" "faster" "slower" "fast"] ["速度" "快一点" "慢一点" "多快"];
    Distance Topic ["distance" "far" "range"] ["距离" "距離" "多远" "多長"];
    Weight Topic ["weight" "weigh" "scale"] ["重量" "体重" "多重"];
    Story Topic ["story" "tale"] ["故事"];
    Joke Topic ["joke"] ["笑话" "笑話"];
    News Topic ["news" "headline"] ["新闻" "新聞" "头条"];
    Sweep Topic ["clean" "vacuum" "sweep" "mop"] ["打扫" "清扫" "扫地" "清洁" "拖地" "吸尘"];
    Dock Topic ["dock" "base" "home"] ["充电座" "充电桩" "基座" "回充" "回家"];
    Water Topic ["water" "irrigate" "sprinkler"] ["浇水" "浇花" "灌溉"];
    Feed Topic ["feed" "feeder" "food"] ["喂食" "投喂" "喂" "食物"];
    Coffee Topic ["coffee" "espresso" "brew"] ["咖啡"];
    Arm Topic ["grab" "grip" "gripper" "grasp" "claw"] ["机械臂" "夹爪" "抓取" "抓住" "抓"];
    Steps Topic ["pedometer" "footstep"] ["步数" "计步"];
    Heart Topic ["heart" "pulse" "heartbeat"] ["心率" "心跳" "脉搏"];
    Game Topic ["game" "score"] ["游戏" "得分" "分数" "关卡"];
    Inventory Topic ["inventory" "backpack" "item"] ["背包" "物品" "道具"];
    Network Topic ["network" "wifi" "internet" "signal"] ["网络" "无线" "信号"];
    Memory Topic ["memory" "disk" "storage" "ram"] ["内存" "磁盘" "存储" "硬盘"];
    Name Topic ["name"] ["名字" "姓名" "我叫"];
    Uptime Topic ["uptime"] ["运行时间" "开机时间"];
    Version Topic ["version" "firmware"] ["版本" "固件"];
    Face Topic ["face" "expression" "emotion" "mood"] ["表情" "情绪" "心情"];
    Play Deed ["play"] ["播放" "放一首" "放首" "来一首" "放点" "放些" "听"];
    On Deed ["on" "enable" "activate"] ["打开" "打開" "开启" "開啟" "点亮" "开" "開"];
    Off Deed ["off" "disable" "deactivate" "extinguish"] ["关闭" "關閉" "关掉" "关上" "熄灭" "熄" "關掉" "關上" "关" "關"];
    Open Deed ["open"] ["打开" "打開" "开启" "開啟" "拉开" "开" "開"];
    Close Deed ["close" "shut"] ["关闭" "關閉" "关上" "關上" "拉上" "关" "關"];
    Lock Deed ["lock"] ["上锁" "锁上" "锁定" "锁"];
    Unlock Deed ["unlock"] ["解锁" "解鎖" "开锁" "開鎖"];
    Start Deed ["start" "begin" "launch" "run"] ["启动" "開始" "开始" "运行"];
    Stop Deed ["stop" "halt" "freeze" "cancel"] ["停止" "停下" "停" "取消"];
    Pause Deed ["pause"] ["暂停" "停一下"];
    Next Deed ["next" "skip"] ["下一首" "下一个" "下一曲" "切歌"];
    Previous Deed ["previous" "former"] ["上一首" "上一个" "上一曲"];
    Up Deed ["up" "increase" "raise" "louder" "brighter" "higher" "warmer" "hotter"] ["调高" "調高" "上调" "调大" "調大" "增大" "升高" "提高" "增加" "大一点" "高一点" "大声" "亮一点"];
    Down Deed ["down" "decrease" "lower" "reduce" "quieter" "dimmer" "cooler" "colder"] ["调低" "調低" "下调" "调小" "調小" "减小" "降低" "减少" "小一点" "低一点" "小声" "暗一点"];
    Create Deed ["create" "make" "write" "new" "add" "save"] ["创建" "新建" "建立" "写入" "写" "生成" "添加" "保存"];
    Delete Deed ["delete" "remove" "erase"] ["删除" "移除" "清除"];
    Send Deed ["send" "post"] ["发送" "发给" "发"];
    Take Deed ["take" "shoot" "capture"] ["拍一张" "捕捉"];
    Set Deed ["set" "adjust" "change" "tune"] ["设置" "設置" "设定" "调到" "调成" "调整" "调节" "设为" "设成" "改成" "变成" "换成" "调"];
    Get Vague ["get" "retrieve" "read" "query" "fetch" "check" "measure" "return" "report" "obtain" "show" "list"] ["获取" "獲取" "查询" "查詢" "读取" "查看" "得到" "返回" "测量" "显示" "列出" "看看" "查一下"];
    Now Vague ["current" "now" "currently"] ["当前" "當前" "目前" "现在" "現在" "此刻"];
    Room Vague ["room"] ["房间" "房間"];
    Status Vague ["status" "state" "info" "information" "condition"] ["状态" "狀態" "信息" "情况"];
    Device Vague ["device" "robot" "toy" "machine" "system" "local"] ["设备" "機器人" "机器人" "玩具" "系统" "本地"];
    Front Value ["forward" "ahead" "front" "straight"] ["向前" "往前" "前进" "前方" "前"];
    Back Value ["backward" "back" "reverse" "rear"] ["向后" "往后" "后退" "倒退" "后方" "后"];
    Left Value ["left"] ["向左" "往左" "左转" "左边" "左侧" "左"];
    Right Value ["right"] ["向右" "往右" "右转" "右边" "右侧" "右"];
    Red Value ["red"] ["红色" "紅色" "红"];
    Green Value ["green"] ["绿色" "綠色" "绿"];
    Blue Value ["blue"] ["蓝色" "藍色" "蓝"];
    Yellow Value ["yellow"] ["黄色" "黃色" "黄"];
    White Value ["white"] ["白色" "白光"];
    Black Value ["black"] ["黑色"];
    Purple Value ["purple" "violet"] ["紫色" "紫"];
    Orange Value ["orange"] ["橙色" "橘色"];
    Pink Value ["pink"] ["粉色" "粉红色" "粉红"];
    Simple Value ["simple" "short" "brief" "basic"] ["简单" "简短" "簡單" "简略"];
    Detailed Value ["detailed" "detail" "full" "complete" "long"] ["详细" "詳細" "完整" "具体"];
    Happy Value ["happy" "glad" "cheerful" "smile"] ["开心" "高兴" "快乐" "微笑"];
    Sad Value ["sad" "unhappy" "cry"] ["难过" "伤心" "悲伤"];
    Angry Value ["angry" "mad"] ["生气" "愤怒"];
    Calm Value ["calm" "relaxed" "soft"] ["平静" "轻柔" "柔和"];
    Quick Value ["quick" "quickly" "turbo"] ["快速" "快点" "快"];
    Slow Value ["slow" "slowly"] ["缓慢" "慢慢" "慢"];
    Quiet Value ["quiet" "silent" "mute"] ["安静" "静音"];
    Strong Value ["strong" "max" "maximum" "high"] ["强力" "最大" "最高" "高"];
    Weak Value ["weak" "min" "minimum" "low" "gentle"] ["弱" "最小" "最低" "低"];
    Medium Value ["medium" "middle" "normal"] ["中等" "中档" "正常"];
    Auto Value ["auto" "automatic"] ["自动" "自動"];
    Cool Value ["cool"] ["制冷"];
    Heat Value ["heat"] ["制热" "加热"];
    Eco Value ["eco" "economy"] ["节能" "省电"];
    Night Value ["night" "sleep"] ["夜间" "睡眠" "晚安"];
    Kitchen Value ["kitchen"] ["厨房"];
    Bedroom Value ["bedroom"] ["卧室"];
    Living Value ["living" "lounge"] ["客厅"];
    Bath Value ["bathroom" "bath"] ["浴室" "卫生间"];
    Study Value ["study" "office"] ["书房" "办公室"];
    Celsius Value ["celsius" "centigrade"] ["摄氏"];
    Fahrenheit Value ["fahrenheit"] ["华氏"];
}

/// Topics that are deeds as well.
pub(super) const ACTS: &[Meaning] = &[
    Meaning::Walk,
    Meaning::Rotate,
    Meaning::Photo,
    Meaning::Video,
    Meaning::Speak,
    Meaning::Repeat,
    Meaning::Dance,
    Meaning::Jump,
    Meaning::Wave,
    Meaning::Sweep,
    Meaning::Dock,
    Meaning::Water,
    Meaning::Feed,
    Meaning::Coffee,
    Meaning::Arm,
];

/// Topics that a service tells of unless it says what it does with them.
pub(super) const TOLD: &[Meaning] = &[
    Meaning::Time,
    Meaning::Date,
    Meaning::Battery,
    Meaning::Temperature,
    Meaning::Humidity,
    Meaning::Weather,
    Meaning::Place,
    Meaning::Weight,
    Meaning::News,
    Meaning::Steps,
    Meaning::Heart,
    Meaning::Network,
    Meaning::Memory,
    Meaning::Uptime,
    Meaning::Version,
];

/// Deeds of which one undoes, or rules out, the other.
pub(super) const OPPOSITES: &[(Meaning, Meaning)] = &[
    (Meaning::On, Meaning::Off),
    (Meaning::Open, Meaning::Close),
    (Meaning::Lock, Meaning::Unlock),
    (Meaning::Start, Meaning::Stop),
    (Meaning::Play, Meaning::Stop),
    (Meaning::Play, Meaning::Pause),
    (Meaning::Next, Meaning::Previous),
    (Meaning::Up, Meaning::Down),
    (Meaning::Create, Meaning::Delete),
    (Meaning::Left, Meaning::Right),
    (Meaning::Front, Meaning::Back),
];

impl Meaning {
    pub(super) fn kind(self) -> Kind {
        let found = CONCEPTS.get(self as usize);
        found.map_or(Kind::Vague, |(_, concept)| concept.kind)
    }
}
